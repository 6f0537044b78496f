#include "engine/plan/micro_batch.h"

#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/plan/plan_building.h"
#include "engine/plan/value_buffers.h"
#include "engine/platform/cache_size.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

// Live values may take this multiple of the second-level caches of all threads: the best of half to four times as much
// for 2 MiB a core and a large shared cache. Twice that loses nothing yet (docs/benchmarks/cpu.md).
constexpr std::int64_t kCaches = 8;
constexpr std::int64_t kStillNear = 2;
// Every micro-batch reads all weights. They may be this multiple of the activations that it writes.
constexpr std::int64_t kWeights = 2;

std::int64_t samples_of(const Shape& shape) {
  return shape.rank() > 0 ? shape[0] : 1;
}

// Marks the node's outputs; what is wrong with it, or nothing.
std::string mark_outputs(const Graph& graph, const Node& node, Samples& samples) {
  std::vector<bool> inputs;
  for (const ValueId id : node.inputs) inputs.push_back(id != kNoValue && samples.by_sample[index(id)]);
  if (std::find(inputs.begin(), inputs.end(), true) == inputs.end()) return {};
  const std::vector<const TensorDesc*> descs = graph.input_descs(node);
  bool apart = node.layer->is_batch_independent({descs, inputs});
  for (const ValueId id : node.outputs) {
    apart = apart && samples_of(graph.value(id).desc.shape) == samples.count;
    samples.by_sample[index(id)] = true;
  }
  return apart ? std::string()
               : fmt::format("node '{}' ({}) mixes the samples of a batch", node.name, node.layer->type());
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

// A number of samples near `wanted` with which few are computed twice; 0: there is none.
std::int64_t even_size(std::int64_t samples, std::int64_t wanted) {
  constexpr std::int64_t kMaxRepeated = 16;  // one in this many
  std::int64_t best = 0;
  std::int64_t fewest = samples + samples / kMaxRepeated + 1;
  const auto consider = [&](std::int64_t size) {
    const std::int64_t computed = round_up(samples, size);
    if (computed >= fewest) return;
    fewest = computed;
    best = size;
  };
  for (std::int64_t size = wanted; 2 * size > wanted; --size) consider(size);
  for (std::int64_t size = wanted + 1; size <= std::min(2 * wanted, samples / 2); ++size) consider(size);
  return best;
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
  std::vector<Step> steps;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (is_view(graph, graph.nodes()[n])) continue;
    Step& step = steps.emplace_back();
    step.index = static_cast<int>(steps.size()) - 1;
    step.node = static_cast<int>(n);
  }
  std::vector<const Step*> in_order;
  for (const Step& step : steps) in_order.push_back(&step);
  ValueBuffers buffers = find_buffers(graph, in_order);
  std::vector<bool> by_sample(buffers.ranges.size(), false);
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    const int buffer = buffers.of(static_cast<ValueId>(v));
    if (buffer != ValueBuffers::kNone && samples.by_sample[v])
      by_sample[static_cast<std::size_t>(buffer)] = true;
  }
  for (std::size_t b = 0; b < by_sample.size(); ++b) {
    std::size_t& bytes = buffers.ranges[b].bytes;
    bytes = by_sample[b] ? bytes / static_cast<std::size_t>(samples.count) : 0;
  }
  return static_cast<std::int64_t>(peak_live_bytes(buffers.ranges));
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
  const std::int64_t most = std::max({std::int64_t{1}, kCaches * threads * second_level_cache() / live,
                                      constants / (kWeights * activations)});
  if (kStillNear * most >= samples.count)
    return {1, 1, fmt::format("{} samples, {} alive for each", samples.count, mebibytes(std::size_t(live)))};
  const std::int64_t size = even_size(samples.count, most);
  if (size == 0)
    return {1, 1, fmt::format("{} samples cannot be cut evenly into parts of about {}", samples.count, most)};
  return {samples.count, size,
          fmt::format("{} alive for each, {} written, {} of weights", mebibytes(std::size_t(live)),
                      mebibytes(std::size_t(activations)), mebibytes(std::size_t(constants)))};
}

}  // namespace pipit::internal
