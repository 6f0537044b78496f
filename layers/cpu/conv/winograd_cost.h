// Winograd's minimal filtering beside a direct convolution that leaves out zeros.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cpu/conv/winograd_tiles.h"

namespace pipit {

/// Winograd's tiles of images x [N, C, H, W] and y [N, O, ...], and the register tile's direct convolution. Of their
/// multiply-accumulates both are left with a share (Candidate::kept_share): the direct sums leave out every zero row of
/// K, Winograd only channels that are zero at all taps. `rate`: multiply-accumulates of the direct convolution that
/// take as long as one of Winograd's products.
struct BesidePruned {
  Shape x;
  Shape y;
  WinogradTiles tiles;
  double kept_direct = 1;
  double kept_winograd = 1;
  double rate = 1;
};

/// Refuses where the register tile is the faster way however it is measured, because it keeps so few of them. Between
/// this and dense weights a measurement decides, as for dense layers, or the order.
Refusal refuse_beside_pruned(const BesidePruned& layer);
/// Candidate::yields: the register tile is the faster way as a rule. Never for dense weights.
bool yields_beside_pruned(const BesidePruned& layer);

}  // namespace pipit
