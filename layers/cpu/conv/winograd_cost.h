// Winograd's minimal filtering beside a direct convolution that leaves out zeros.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cpu/conv/winograd_tiles.h"

namespace pipit {

/// Refuses Winograd's tiles of images x [N, C, H, W] and y [N, O, ...] where the register tile, which keeps
/// `kept_share` of the multiply-accumulates (Candidate::kept_share), is the faster way however it is measured.
/// Transformed weights have no zeros to leave out. `rate`: multiply-accumulates of the direct convolution that take as
/// long as one of Winograd's products. Between this and dense weights the order, or a measurement, decides as for dense
/// layers.
Refusal refuse_beside_pruned(const Shape& x, const Shape& y, const WinogradTiles& tiles, double kept_share,
                             double rate);

}  // namespace pipit
