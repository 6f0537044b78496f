// Convolution by Winograd's minimal filtering: candidates "winograd_f4x4" and "winograd_f2x2" of Conv.
#pragma once

#include "engine/plan/registry.h"
#include "engine/platform/isa.h"

namespace pipit::internal {

/// Largest winograd_error that a layer may have: what is asked of every f32 kernel, ||error|| <= 1e-5 ||output||.
/// For weights and inputs without structure, F(4 x 4) has 1e-6 (16 channels) to 5e-6 (512), growing like the root of
/// the number of channels, and the worst of many outputs is off by ten to twenty times that: 3e-5 where values of
/// deviation 1 reach 4.5. F(2 x 2) is about seven times as exact.
inline constexpr double kMaxWinogradError = 1e-5;

struct WinogradOptions {
  Isa isa = chosen_isa();
  /// Also where a direct convolution is faster whatever the machine: few tiles, few channels.
  bool everywhere = false;
  double max_error = kMaxWinogradError;
};

/// Adds the candidate for m x m outputs per tile (2 or 4). It takes convolutions of 3 x 3, stride 1, dilation 1 and one
/// group, with constant weights and channels_last operands, stored as f32 or all as f16 (then a tile is made f32 when
/// it is read, and results are rounded); any padding, extents, channels and batch.
/// A NaN makes NaN of every output that depends on it, as it should, and it or an infinity may do so to all other
/// outputs of the tiles that read it.
void add_winograd(Registry& registry, int m, const WinogradOptions& options);

}  // namespace pipit::internal
