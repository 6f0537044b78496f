// Which layers of several profiles are the same work, however kernels took them together.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace pipit::internal {

/// What one kernel call computed and took.
struct LayerSeries {
  std::vector<std::string> nodes;  ///< of the model
  std::vector<double> ms;          ///< run by run
};

/// The smallest sets of layers such that layers with a node in common are in one set: where one side fuses what another
/// does not, the set has one layer there and two here. Element [set][side] lists positions on that side; none where
/// that side has nothing of the kind. In the order of side 0; a set that it does not have comes after what precedes it
/// on another side.
std::vector<std::vector<std::vector<std::size_t>>> match_layers(
    std::span<const std::vector<LayerSeries>> sides);

/// Run by run, the sum of those layers; as many runs as the shortest has.
std::vector<double> summed_ms(const std::vector<LayerSeries>& side, std::span<const std::size_t> layers);

}  // namespace pipit::internal
