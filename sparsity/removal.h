// What is removed of every layer, whatever mask says so, and the network that remains.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sparsity/layer_walk.h"
#include "sparsity/mask.h"
#include "sparsity/refit.h"

namespace pipit::internal {

/// What is removed of one layer with constant weights.
struct Removal {
  std::vector<std::uint8_t> weights;  ///< per weight, 1 where it is removed
  std::vector<std::uint8_t> outputs;  ///< per output, 1 where it becomes 0 with its bias
};
using Removals = std::map<std::string, Removal>;

/// Throws as apply_mask() does.
Removals removals_of(const Graph& graph, const PruningMask& mask);

struct RemovalOptions {
  WalkOptions walk;
  RefitOptions refit;
  bool refits = true;  ///< false: kept weights stay as they are
  /// How often weights are fitted once more, for what the layer's activation lets through (bound_targets()).
  int turns = 3;
};

struct Remaining {
  Graph graph;
  /// Per layer with constant weights that changed, or reads what did, and of which outputs are left:
  /// Gram::error() of those on the sampled columns, from the targets that were fitted last, over the variance of the
  /// dense ones.
  std::map<std::string, double> errors;
};

/// Removes the weights and fits those that are kept, layer after layer (walk_layers, refit), first to the layer's
/// outputs, then for what its activation lets through: also layers that lose nothing make up for what those before
/// them lost. Layers deeper than most_depth() are not fitted.
Remaining remove_and_refit(const Graph& graph, std::vector<Tensor> inputs, const Removals& removals,
                           const RemovalOptions& options,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace pipit::internal
