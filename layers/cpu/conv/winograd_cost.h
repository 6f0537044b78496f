// What a 3x3 convolution takes by Winograd's minimal filtering and by direct sums: which of the two is chosen.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cpu/tile/kept_steps.h"
#include "layers/cpu/tile/tile_kernel.h"

namespace pipit::internal {

/// What an instruction set takes for one kind of Winograd, in steps of the direct sums' register tile: 4 bytes of K for
/// one output, of as many as a vector has lanes.
struct WinogradRates {
  double product = 1;  ///< a step of Winograd's products
  double input = 0;    ///< a value of x: its share of the transformed tiles
  double output = 0;   ///< a value of y: the inverse transform of its tile's products
};
/// In f32, by tiles of m x m outputs (2 or 4).
WinogradRates float_winograd_rates(int m, Isa isa);
/// In integers. `direct`: that of the direct sums' tile.
WinogradRates byte_winograd_rates(Isa direct);

/// Steps of the direct sums of y [N, O, ...] with the weights that are kept; those of AMX as many of
/// VNNI as take as long.
double direct_steps(const Shape& y, const TileKernels& kernels, const KeptSteps& kept);

/// A layer x [N, C, H, W] to y [N, O, ...]. Its costs are times on one thread, in steps (see WinogradRates), whatever
/// the plan has: the two kernels round differently, and results do not depend on the number of threads.
struct WinogradLayer {
  Shape x;
  Shape y;
  int lanes = 1;
  double direct_steps = 0;
  double product_steps = 0;  ///< WinogradSchedule::steps() of one thread
  WinogradRates rates;

  double direct_cost() const;
  /// `transforms`: the share of what transforms take as a rule.
  double winograd_cost(double transforms = 1) const;
  /// The estimate of Winograd's kernel, in the time of the direct sums.
  Estimate estimate() const { return {winograd_cost() / direct_cost(), {}, {}}; }
};

/// The estimate of the direct sums' kernel in their own time: what Winograd's are compared with.
inline std::optional<Estimate> direct_estimate(const NodeSpec& /*spec*/) {
  return Estimate{1, {}, {}};
}

/// Refuses where the direct sums leave out zeros (`kept`, of 1) that Winograd multiplies, and are faster even if
/// transforms took 0.6 of what they do.
Refusal refuse_beside_pruned(const WinogradLayer& layer, double kept);

}  // namespace pipit::internal
