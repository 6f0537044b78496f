// How much to take from which layer, so that a model reaches a speedup at the least cost.
#pragma once

#include <cstddef>
#include <vector>

namespace pipit::internal {

/// One variant of a layer.
struct Option {
  double ms = 0;
  double cost = 0;  ///< of accuracy, in whatever unit adds up over layers
  int kind = 0;     ///< what it does to the layer: SelectionSearch corrects costs of a kind together
};

/// One variant of what several layers share, for example a residual stream: it multiplies the times of the layers,
/// whatever options they have, and has a cost of its own.
struct SharedOption {
  double cost = 0;
  std::vector<double> factors;  ///< per layer
};

/// One option of every layer and of everything shared: of layer i the option chosen[i].
struct Selection {
  std::vector<std::size_t> chosen;
  std::vector<std::size_t> shared;
  double ms = 0;
  double cost = 0;
};

/// Selections from the cheapest in cost to the fastest. `layers`: per layer its options, the first one (dense) of cost
/// 0. `shared`: the same for what layers share; the first has factors of 1. The next choice is the one with the least
/// cost for the time that it saves then. Without anything shared these are the greedy solutions of the multiple-choice
/// knapsack problem, each of them optimal for its own time (Sinha and Zoltners 1979). What is shared saves less once
/// layers are fast; so each of its options is also taken first, and the best of all that comes of it is returned.
/// Throws Error for a layer without options, or factors that are not as many as layers.
std::vector<Selection> selections(const std::vector<std::vector<Option>>& layers,
                                  const std::vector<std::vector<SharedOption>>& shared = {});

/// The first selection that takes at most `ms`, or the last one.
const Selection& within(const std::vector<Selection>& all, double ms);

}  // namespace pipit::internal
