#include "engine/micro_batch.h"

#include <unistd.h>

#include <numeric>
#include <utility>

#include "engine/memory_planner.h"
#include "engine/plan_parts.h"

namespace pipit {

namespace {

// What is alive may take so many times the second-level caches of all threads: with 2 MiB a core and a large shared
// cache behind it, the best of half to four times as much. Twice that loses nothing yet (docs/benchmarks/cpu.md).
constexpr std::int64_t kCaches = 8;
constexpr std::int64_t kStillNear = 2;
// Every micro-batch reads all weights. They may be so many times as much as the activations that it writes.
constexpr std::int64_t kWeights = 2;

std::int64_t cache_bytes(int threads) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  const long l2 = 0;
#endif
  return kCaches * threads * std::int64_t{l2 > 0 ? l2 : 1 << 20};
}

std::size_t index(ValueId id) {
  return static_cast<std::size_t>(id);
}

std::int64_t samples_of(const Shape& shape) {
  return shape.rank() > 0 ? shape[0] : 1;
}

// Marks the node's outputs; what is wrong with it, or nothing.
std::string mark_outputs(const Graph& graph, const Node& node, Samples& samples) {
  std::vector<bool> inputs;
  for (const ValueId id : node.inputs) inputs.push_back(id != kNoValue && samples.by_sample[index(id)]);
  if (std::find(inputs.begin(), inputs.end(), true) == inputs.end()) return {};
  const std::vector<const TensorDesc*> descs = graph.input_descs(node);
  bool apart = node.layer->keeps_samples_apart({descs, inputs});
  for (const ValueId id : node.outputs) {
    apart = apart && samples_of(graph.value(id).desc.shape) == samples.count;
    samples.by_sample[index(id)] = true;
  }
  return apart ? std::string()
               : fmt::format("node '{}' ({}) does not keep samples apart", node.name, node.layer->type());
}

std::string find_obstacle(const Graph& graph, Samples& samples) {
  for (const ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    if (samples_of(value.desc.shape) != samples.count)
      return fmt::format("input '{}' is {}, others have {} samples", value.name, value.desc.shape.str(),
                         samples.count);
    samples.by_sample[index(id)] = true;
  }
  if (samples.count < 2) return "the batch is 1";
  for (const Node& node : graph.nodes()) {
    if (std::string problem = mark_outputs(graph, node, samples); !problem.empty()) return problem;
  }
  for (const ValueId id : graph.outputs()) {
    if (!samples.by_sample[index(id)])
      return fmt::format("output '{}' is one for all samples", graph.value(id).name);
  }
  return {};
}

// Where a value's memory is: itself, or what it is a view of.
std::vector<ValueId> find_roots(const Graph& graph) {
  std::vector<ValueId> roots(graph.values().size());
  std::iota(roots.begin(), roots.end(), ValueId{0});
  for (const Node& node : graph.nodes()) {
    if (is_view(graph, node)) roots[index(node.outputs[0])] = roots[index(node.inputs[0])];
  }
  return roots;
}

// What output 0 of an element-wise node may take over, as the placement does it: an input that dies here and is no
// graph input; else none.
ValueId overwritten(const Graph& graph, const Node& node, const std::vector<ValueId>& roots,
                    const std::vector<int>& last_use, int step) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id == kNoValue || graph.value(id).is_constant() || !node.layer->may_run_in_place(static_cast<int>(i)))
      continue;
    const ValueId root = roots[index(id)];
    const bool given = std::find(graph.inputs().begin(), graph.inputs().end(), root) != graph.inputs().end();
    if (!given && last_use[index(root)] == step &&
        graph.value(root).desc.bytes() == graph.value(node.outputs[0]).desc.bytes())
      return root;
  }
  return kNoValue;
}

// A number of samples near `wanted` with which few are computed twice; 0: there is none.
std::int64_t even_size(std::int64_t samples, std::int64_t wanted) {
  constexpr std::int64_t kMostRepeated = 16;  // one in so many
  std::int64_t best = 0;
  std::int64_t fewest = samples + samples / kMostRepeated + 1;
  const auto consider = [&](std::int64_t size) {
    const std::int64_t computed = (samples + size - 1) / size * size;
    if (computed >= fewest) return;
    fewest = computed;
    best = size;
  };
  for (std::int64_t size = wanted; 2 * size > wanted; --size) consider(size);
  for (std::int64_t size = wanted + 1; size <= std::min(2 * wanted, samples / 2); ++size) consider(size);
  return best;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

// All constants, and what one sample writes (at least 1).
std::pair<std::int64_t, std::int64_t> total_bytes(const Graph& graph, const Samples& samples) {
  std::int64_t constants = 0;
  std::int64_t activations = 1;
  for (const Value& value : graph.values()) {
    if (value.is_constant()) constants += static_cast<std::int64_t>(value.desc.bytes());
  }
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) {
      if (samples.by_sample[index(id)] && !is_view(graph, node))
        activations += static_cast<std::int64_t>(graph.value(id).desc.bytes()) / samples.count;
    }
  }
  return {constants, activations};
}

}  // namespace

Samples find_samples(const Graph& graph) {
  Samples samples;
  samples.by_sample.assign(graph.values().size(), false);
  if (!graph.inputs().empty()) samples.count = samples_of(graph.value(graph.inputs()[0]).desc.shape);
  samples.obstacle = find_obstacle(graph, samples);
  return samples;
}

std::int64_t live_bytes_per_sample(const Graph& graph, const Samples& samples) {
  const std::vector<ValueId> roots = find_roots(graph);
  std::vector<int> last_use(graph.values().size(), -1);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    for (const ValueId id : graph.nodes()[n].inputs) {
      if (id != kNoValue) last_use[index(roots[index(id)])] = static_cast<int>(n);
    }
  }
  for (const ValueId id : graph.outputs())
    last_use[index(roots[index(id)])] = static_cast<int>(graph.nodes().size());
  std::vector<LiveRange> ranges;
  std::vector<std::size_t> range_of(graph.values().size(), 0);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_view(graph, node)) continue;
    const int step = static_cast<int>(n);
    for (const ValueId id : node.outputs) {
      if (!samples.by_sample[index(id)]) continue;
      const int last = std::max(step, last_use[index(id)]);
      const ValueId over = id == node.outputs[0] ? overwritten(graph, node, roots, last_use, step) : kNoValue;
      if (over != kNoValue && samples.by_sample[index(over)]) {
        range_of[index(id)] = range_of[index(over)];
        ranges[range_of[index(id)]].last = last;
        continue;
      }
      range_of[index(id)] = ranges.size();
      const std::size_t bytes = graph.value(id).desc.bytes() / static_cast<std::size_t>(samples.count);
      ranges.push_back({bytes, step, last});
    }
  }
  return static_cast<std::int64_t>(peak_live_bytes(ranges));
}

MicroBatches choose_micro_batches(const Graph& graph, const Samples& samples,
                                  std::optional<std::int64_t> wanted, int threads) {
  if (wanted == 0) return {1, 1, "all samples together, as asked for"};
  if (wanted && *wanted < samples.count && !samples.obstacle.empty())
    fail("micro-batches of {} cannot be made: {} (0 runs the batch whole)", *wanted, samples.obstacle);
  if (!samples.obstacle.empty()) return {1, 1, samples.obstacle};
  if (wanted) return {samples.count, std::min(*wanted, samples.count), "as asked for"};
  const auto [constants, activations] = total_bytes(graph, samples);
  const std::int64_t live = std::max<std::int64_t>(live_bytes_per_sample(graph, samples), 1);
  const std::int64_t most =
      std::max({std::int64_t{1}, cache_bytes(threads) / live, constants / (kWeights * activations)});
  if (kStillNear * most >= samples.count)
    return {1, 1, fmt::format("{} samples, {} alive for each", samples.count, mebibytes(live))};
  const std::int64_t size = even_size(samples.count, most);
  if (size == 0)
    return {1, 1, fmt::format("{} samples cannot be cut evenly into parts of about {}", samples.count, most)};
  return {samples.count, size,
          fmt::format("{} alive for each, {} written, {} of weights", mebibytes(live), mebibytes(activations),
                      mebibytes(constants))};
}

}  // namespace pipit
