#include "sparsity/layer_walk.h"

#include <algorithm>
#include <map>
#include <span>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/runtime/session.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/passes/passes.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "layers/registry.h"
#include "sparsity/columns.h"
#include "sparsity/linear_algebra.h"

namespace pipit::internal {

namespace {

using TensorPtr = std::shared_ptr<const Tensor>;

constexpr std::size_t kBlock = 64;  // columns that one thread reads and multiplies at a time

// One node as a graph of its own, on its fastest kernel.
class NodeRunner {
 public:
  NodeRunner(const Graph& graph, const Node& node, const PlanOptions& options,
             const std::shared_ptr<ThreadPool>& pool) {
    GraphBuilder builder;
    std::map<ValueId, ValueId> known;
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) {
        inputs.push_back(kNoValue);
        continue;
      }
      const Value& value = graph.value(id);
      const auto found = known.try_emplace(id, kNoValue);
      if (found.second) {
        if (!value.constant) reads_.push_back(id);
        found.first->second = value.constant ? builder.add_constant(value.name, value.constant)
                                             : builder.add_input(value.name, value.desc);
      }
      inputs.push_back(found.first->second);
    }
    for (const ValueId id : builder.add(node.name, node.layer, inputs)) builder.mark_output(id);
    session_ = std::make_unique<Session>(
        ExecutionPlan::build(assign_layouts(builder.build()).graph, default_registry(), options), pool);
  }

  /// The node's inputs that are computed, each once.
  const std::vector<ValueId>& reads() const { return reads_; }

  std::vector<TensorPtr> run(const std::vector<TensorPtr>& inputs) {
    std::vector<ConstTensorView> views;
    for (const TensorPtr& input : inputs) views.push_back(input->view());
    std::vector<TensorPtr> outputs;
    for (const ConstTensorView& view : session_->run(views))
      outputs.push_back(std::make_shared<const Tensor>(to_layout(view, Layout::row_major)));
    return outputs;
  }

 private:
  std::vector<ValueId> reads_;
  std::unique_ptr<Session> session_;
};

// A value of one run in both networks: one tensor while they agree.
struct Pair {
  TensorPtr dense;
  TensorPtr changed;
};

struct Walk {
  const Graph& graph;
  const WalkOptions& options;
  std::shared_ptr<ThreadPool> pool;
  std::size_t runs = 0;
  std::vector<std::vector<Pair>> values;  // per value, per run
  std::vector<int> readers;               // per value: how many nodes are still to read it
  const ChangeValue& change;

  // A value as the changed network goes on with it.
  TensorPtr changed(ValueId id, const TensorPtr& value) const {
    if (!change) return value;
    Tensor copy = value->clone();
    change(id, copy);
    return std::make_shared<const Tensor>(std::move(copy));
  }
};

class Visited final : public WalkedLayer {
 public:
  Visited(const Walk& walk, const Node& node, std::size_t number)
      : walk_(walk), node_(node), number_(number) {}
  const Node& node() const override { return node_; }
  bool untouched() const override {
    return agrees(node_.inputs[0]) && (residual() == kNoValue || agrees(residual()));
  }

  Clamp activation() const override {
    if (const auto* conv = layer_if<Conv>(node_)) return conv->attributes().activation;
    if (const auto* gemm = layer_if<Gemm>(node_)) return gemm->attributes().activation;
    return {};
  }

  std::vector<Gram> sums() const override {
    const Columns columns(walk_.graph, node_);
    const RealWeights weights = real_weights(walk_.graph, node_);
    std::vector<Gram> grams;
    for (std::size_t g = 0; g < columns.groups(); ++g) grams.push_back(add_up(columns, weights, g));
    return grams;
  }

  void bound_targets(std::vector<Gram>& sums, const NewWeights& weights) const override {
    const Columns columns(walk_.graph, node_);
    const RealWeights dense = real_weights(walk_.graph, node_);
    const Part now{weights.weights.values<float>(), weights.bias};
    for (std::size_t g = 0; g < columns.groups(); ++g) bound_targets(columns, dense, now, g, sums[g]);
  }

 private:
  bool agrees(ValueId id) const {
    const Pair& pair = walk_.values[index(id)][0];
    return pair.dense == pair.changed;
  }

  ValueId residual() const {
    const std::optional<std::size_t> input = node_.layer->traits().residual;
    return input && *input < node_.inputs.size() ? node_.inputs[*input] : kNoValue;
  }

  // The samples of a run; 1 where positions do not belong to samples.
  std::int64_t samples(const Columns& columns) const {
    const std::int64_t batch = walk_.graph.value(node_.inputs[0]).desc.shape[0];
    return batch > 0 && columns.positions() % batch == 0 ? batch : 1;
  }

  std::int64_t columns_of_a_sample(const Columns& columns) const {
    const auto depth = static_cast<double>(columns.depth() + 1);
    const double least = walk_.options.least * depth;
    const double wanted = std::clamp(walk_.options.work / (depth * depth), least,
                                     std::max(least, static_cast<double>(walk_.options.most_columns)));
    const double all = static_cast<double>(walk_.runs) * static_cast<double>(samples(columns));
    return static_cast<std::int64_t>(wanted / all) + 1;
  }

  // Weights and biases (or none) of all groups.
  struct Part {
    std::span<const float> weights;
    std::span<const float> bias;

    void outputs(float* y, const float* x, std::size_t stride, std::size_t count, std::size_t group,
                 const Columns& columns) const {
      const std::size_t outputs = columns.outputs();
      const float* b = bias.empty() ? nullptr : bias.data() + group * outputs;
      linear_algebra().outputs(y, x, stride, weights.data() + group * outputs * columns.depth(), b, count,
                               outputs, columns.depth());
    }
  };

  // Some columns of one run: x has them already, as the changed network computes them.
  struct Block {
    std::size_t run;
    std::span<const std::int64_t> positions;
    float* x;
    std::size_t stride;
    float* y;  // to be filled, if the builder takes outputs
    int worker;
  };

  template <typename Fill>
  void for_each_block(const Columns& columns, std::size_t group, GramBuilder& builder,
                      const Fill& fill) const {
    const std::int64_t wanted = columns_of_a_sample(columns);
    for (std::size_t run = 0; run < walk_.runs; ++run) {
      const float* from = walk_.values[index(node_.inputs[0])][run].changed->values<float>().data();
      const std::vector<std::int64_t> positions = sample_positions_of_each(
          columns.positions(), samples(columns), wanted, walk_.options.seed + number_, run);
      for (std::span<const std::int64_t> left = positions; !left.empty();) {
        const GramBuilder::Rows rows = builder.next(left.size());
        const std::span<const std::int64_t> now = left.first(rows.count);
        left = left.subspan(rows.count);
        const auto fill_block = [&](std::int64_t block, int worker) {
          const std::size_t first = static_cast<std::size_t>(block) * kBlock;
          const std::span<const std::int64_t> some = now.subspan(first, std::min(kBlock, rows.count - first));
          float* x = rows.x + first * rows.stride;
          for (std::size_t p = 0; p < some.size(); ++p)
            columns.read(from, some[p], group, x + p * rows.stride);
          float* y = rows.y == nullptr ? nullptr : rows.y + first * columns.outputs();
          fill(Block{run, some, x, rows.stride, y, worker});
        };
        walk_.pool->parallel_for(ceil_div(static_cast<std::int64_t>(rows.count), std::int64_t{kBlock}),
                                 fill_block);
      }
    }
    builder.finish();
  }

  // y of a block. `room`: for kBlock columns.
  void dense_outputs(const Columns& columns, std::size_t group, const Part& dense, const Block& block,
                     float* room) const {
    const std::size_t depth = columns.depth();
    const float* from = walk_.values[index(node_.inputs[0])][block.run].dense->values<float>().data();
    for (std::size_t p = 0; p < block.positions.size(); ++p)
      columns.read(from, block.positions[p], group, room + p * depth);
    dense.outputs(block.y, room, depth, block.positions.size(), group, columns);
    if (residual() != kNoValue) add_residual(columns, block, group);
  }

  Gram add_up(const Columns& columns, const RealWeights& weights, std::size_t group) const {
    const bool same = untouched();
    const Part dense{weights.values(), weights.bias};
    Gram gram(columns.depth(), columns.outputs());
    GramBuilder builder(gram, *walk_.pool, same ? GramBuilder::Sums::inputs : GramBuilder::Sums::all);
    const std::size_t each = kBlock * columns.depth();
    std::vector<float> room(same ? 0 : static_cast<std::size_t>(walk_.pool->size()) * each);
    for_each_block(columns, group, builder, [&](const Block& block) {
      if (!same)
        dense_outputs(columns, group, dense, block, &room[static_cast<std::size_t>(block.worker) * each]);
    });
    if (same) {
      const std::size_t outputs = columns.outputs();
      gram.set_outputs(dense.weights.subspan(group * outputs * columns.depth(), outputs * columns.depth()),
                       dense.bias.empty() ? dense.bias : dense.bias.subspan(group * outputs, outputs));
    }
    return gram;
  }

  void bound_targets(const Columns& columns, const RealWeights& weights, const Part& now, std::size_t group,
                     Gram& gram) const {
    const Clamp clamp = activation();
    const Part dense{weights.values(), weights.bias};
    const std::size_t outputs = columns.outputs();
    gram.clear_outputs();
    GramBuilder builder(gram, *walk_.pool, GramBuilder::Sums::outputs);
    const std::size_t each = kBlock * columns.depth();
    const auto workers = static_cast<std::size_t>(walk_.pool->size());
    std::vector<float> room(workers * each), computed(workers * kBlock * outputs);
    for_each_block(columns, group, builder, [&](const Block& block) {
      const auto worker = static_cast<std::size_t>(block.worker);
      dense_outputs(columns, group, dense, block, &room[worker * each]);
      float* is = &computed[worker * kBlock * outputs];
      now.outputs(is, block.x, block.stride, block.positions.size(), group, columns);
      const float* added = residual() == kNoValue
                               ? nullptr
                               : walk_.values[index(residual())][block.run].changed->values<float>().data();
      for (std::size_t p = 0; p < block.positions.size(); ++p) {
        for (std::size_t o = 0; o < outputs; ++o) {
          const float r =
              added == nullptr ? 0.0F : added[columns.offset(block.positions[p], group * outputs + o)];
          float& t = block.y[p * outputs + o];
          const float sum = is[p * outputs + o] + r;  // before the activation
          if (t + r <= clamp.low) {
            t = std::min(sum, clamp.low) - r;
          } else if (t + r >= clamp.high) {
            t = std::max(sum, clamp.high) - r;
          }
        }
      }
    });
  }

  // What the dense residual has more than the changed one.
  void add_residual(const Columns& columns, const Block& block, std::size_t group) const {
    const Pair& r = walk_.values[index(residual())][block.run];
    const std::span<const float> dense = r.dense->values<float>();
    const std::span<const float> changed = r.changed->values<float>();
    const std::size_t outputs = columns.outputs();
    for (std::size_t p = 0; p < block.positions.size(); ++p) {
      for (std::size_t o = 0; o < outputs; ++o) {
        const std::size_t at = columns.offset(block.positions[p], group * outputs + o);
        block.y[p * outputs + o] += dense[at] - changed[at];
      }
    }
  }

  const Walk& walk_;
  const Node& node_;
  std::size_t number_;
};

// Computes the node in both networks for every run, and releases what is not read any more.
void step(Walk& walk, const Node& node, NodeRunner dense, std::unique_ptr<NodeRunner> changed) {
  const std::vector<ValueId>& reads = dense.reads();
  for (const ValueId id : reads) --walk.readers[index(id)];
  for (const ValueId id : node.outputs) {
    if (walk.readers[index(id)] > 0) walk.values[index(id)].resize(walk.runs);
  }
  for (std::size_t run = 0; run < walk.runs; ++run) {
    std::vector<TensorPtr> own, other;
    for (const ValueId id : reads) {
      Pair& pair = walk.values[index(id)][run];
      own.push_back(pair.dense);
      other.push_back(pair.changed);
      if (walk.readers[index(id)] == 0) pair = {};
    }
    const bool same = changed == nullptr && own == other;
    const std::vector<TensorPtr> y = dense.run(own);
    own.clear();
    const std::vector<TensorPtr> z = same ? y : (changed ? *changed : dense).run(other);
    for (std::size_t o = 0; o < y.size(); ++o) {
      const ValueId id = node.outputs[o];
      if (walk.readers[index(id)] > 0) walk.values[index(id)][run] = {y[o], walk.changed(id, z[o])};
    }
  }
  for (const ValueId id : reads) {
    if (walk.readers[index(id)] == 0) walk.values[index(id)] = {};
  }
}

std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.values().size(), 0);
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> reads = node.inputs;
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (const ValueId id : reads) {
      if (id != kNoValue && !graph.value(id).is_constant()) ++readers[index(id)];
    }
  }
  return readers;
}

}  // namespace

Graph walk_layers(const Graph& graph, std::vector<Tensor> inputs, const WalkOptions& options,
                  const VisitLayer& visit,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress,
                  const ChangeValue& change) {
  if (graph.inputs().size() != 1)
    fail("a model with {} inputs: expected one, the image", graph.inputs().size());
  if (inputs.empty()) fail("no images to observe the model on");
  PlanOptions planning;
  planning.threads = options.threads;
  Walk walk{graph, options, shared_pool(options.threads), inputs.size(), {}, count_readers(graph), change};
  walk.values.resize(graph.values().size());
  for (Tensor& input : inputs) {
    const auto shared = std::make_shared<const Tensor>(std::move(input));
    const ValueId id = graph.inputs()[0];
    walk.values[index(id)].push_back({shared, walk.changed(id, shared)});
  }
  std::map<std::string, NewWeights> replaced;
  const auto total = static_cast<std::int64_t>(graph.nodes().size());
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    std::unique_ptr<NodeRunner> changed;
    if (has_constant_weights(graph, node)) {
      std::optional<NewWeights> weights = visit(Visited(walk, node, n));
      if (weights) {
        std::map<std::string, NewWeights> one;
        one.emplace(node.name, NewWeights{weights->weights.clone(), weights->bias});
        const Graph single = replace_weights(graph, std::move(one));
        changed = std::make_unique<NodeRunner>(single, weighted_node(single, node.name), planning, walk.pool);
        replaced.insert_or_assign(node.name, std::move(*weights));
      }
    }
    const bool last = std::all_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId id) { return walk.readers[index(id)] == 0; });
    if (!last) step(walk, node, NodeRunner(graph, node, planning, walk.pool), std::move(changed));
    if (progress) progress(static_cast<std::int64_t>(n) + 1, total);
  }
  return replace_weights(graph, std::move(replaced));
}

std::size_t walk_bytes(const Graph& graph) {
  std::vector<int> readers = count_readers(graph);
  std::size_t held = graph.value(graph.inputs().at(0)).desc.bytes();
  std::size_t most = held;
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> reads = node.inputs;
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    // What dies with this node goes run by run, as the outputs come.
    for (const ValueId id : node.outputs) held += readers[index(id)] > 0 ? graph.value(id).desc.bytes() : 0;
    for (const ValueId id : reads) {
      if (id != kNoValue && !graph.value(id).is_constant() && --readers[index(id)] == 0)
        held -= graph.value(id).desc.bytes();
    }
    most = std::max(most, held);
  }
  return 2 * most;
}

}  // namespace pipit::internal
