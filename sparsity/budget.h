// How much to take from which layer, so that a model becomes so much faster at the least cost.
#pragma once

#include <cstddef>
#include <vector>

namespace pipit {

/// One way to have a layer.
struct Option {
  double ms = 0;
  double cost = 0;  ///< of accuracy, in whatever unit adds up over layers
};

/// One option of every layer: of layer i the option chosen[i].
struct Selection {
  std::vector<std::size_t> chosen;
  double ms = 0;
  double cost = 0;
};

/// Selections from the cheapest in cost to the fastest. `layers`: per layer its options, the first one (dense) of cost
/// 0. Each selection differs from the one before in one layer, which goes to its next option on the lower convex hull
/// of (ms, cost); steps are in the order of cost per millisecond: the greedy solutions of the multiple-choice knapsack
/// problem, each of them optimal for its own time (Sinha and Zoltners 1979). Throws Error for a layer without options.
std::vector<Selection> selections(const std::vector<std::vector<Option>>& layers);

/// The first selection that takes at most `ms`, or the last one.
const Selection& within(const std::vector<Selection>& all, double ms);

}  // namespace pipit
