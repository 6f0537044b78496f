#include "sparsity/removal.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

void join(std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& from) {
  if (to.empty()) to.assign(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) to[i] |= from[i];
}

NewWeights masked(const NewWeights& dense, const Removal& removal) {
  NewWeights made{dense.weights.clone(), dense.bias};
  const std::span<float> values = made.weights.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (removal.weights[i] != 0) values[i] = 0;
  }
  for (std::size_t o = 0; o < made.bias.size(); ++o) {
    if (removal.outputs[o] != 0) made.bias[o] = 0;
  }
  return made;
}

bool computes_nothing(const Removal& removal) {
  return std::all_of(removal.outputs.begin(), removal.outputs.end(),
                     [](std::uint8_t mark) { return mark != 0; });
}

// Per group of the convolution.
std::vector<double> variances(const std::vector<Gram>& sums, std::span<const std::uint8_t> dead) {
  std::vector<double> all;
  for (std::size_t g = 0; g < sums.size(); ++g)
    all.push_back(sums[g].variance(dead.empty() ? dead : dead.subspan(g * sums[g].outputs, sums[g].outputs)));
  return all;
}

// The mean over groups.
double relative_error(const std::vector<Gram>& sums, const NewWeights& weights,
                      std::span<const std::uint8_t> dead, const std::vector<double>& variances) {
  const std::span<const float> w = weights.weights.values<float>();
  const std::span<const float> b = weights.bias;
  const std::size_t each = w.size() / sums.size();
  double error = 0;
  for (std::size_t g = 0; g < sums.size(); ++g) {
    if (!(variances[g] > 0)) continue;
    const std::size_t outputs = sums[g].outputs;
    error += sums[g].error(w.subspan(g * each, each), b.empty() ? b : b.subspan(g * outputs, outputs),
                           dead.empty() ? dead : dead.subspan(g * outputs, outputs)) /
             variances[g];
  }
  return error / static_cast<double>(sums.size());
}

}  // namespace

Removals removals_of(const Graph& graph, const PruningMask& mask) {
  Removals removals;
  for (const LayerMask& layer : mask) {
    const Node& node = weighted_node(graph, layer.node);
    const auto* conv = layer_if<Conv>(node);
    const std::int64_t groups = conv == nullptr ? 1 : conv->attributes().groups;
    const Shape shape = real_weights(graph, node).shape;
    Removal& removal = removals[layer.node];
    join(removal.weights, removed_weights(layer, shape, groups));
    join(removal.outputs, removed_outputs(layer, shape, groups));
  }
  return removals;
}

Remaining remove_and_refit(const Graph& graph, std::vector<Tensor> inputs, const Removals& removals,
                           const RemovalOptions& options,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  for (const auto& [name, removal] : removals) weighted_node(graph, name);
  constexpr std::span<const std::uint8_t> none;
  Remaining remaining;
  const std::shared_ptr<ThreadPool> pool = shared_pool(options.walk.threads);
  const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
    const auto found = removals.find(layer.node().name);
    const bool loses = found != removals.end();
    if (!loses && layer.untouched()) return std::nullopt;
    const NewWeights dense = weights_of(graph, layer.node());
    if (loses && computes_nothing(found->second)) return masked(dense, found->second);
    const Shape& shape = dense.weights.shape();
    if (shape.elements() / shape[0] > most_depth())
      return loses ? std::optional(masked(dense, found->second)) : std::nullopt;
    std::vector<Gram> sums = layer.sums();
    const std::span<const std::uint8_t> removed = loses ? std::span(found->second.weights) : none;
    const std::span<const std::uint8_t> dead = loses ? std::span(found->second.outputs) : none;
    const std::vector<double> before = variances(sums, dead);
    std::optional<NewWeights> made;
    if (options.refits) {
      const bool with_bias = layer_if<MatMul>(layer.node()) == nullptr;
      const int turns = layer.activation().is_identity() ? 0 : options.turns;
      made = refit(sums, dense, removed, dead, with_bias, options.refit, *pool);
      for (int turn = 0; turn < turns; ++turn) {
        layer.bound_targets(sums, *made);
        made = refit(sums, dense, removed, dead, with_bias, options.refit, *pool);
      }
    } else if (loses) {
      made = masked(dense, found->second);
    }
    remaining.errors[layer.node().name] = relative_error(sums, made ? *made : dense, dead, before);
    return made;
  };
  remaining.graph = walk_layers(graph, std::move(inputs), options.walk, visit, progress);
  return remaining;
}

}  // namespace pipit::internal
