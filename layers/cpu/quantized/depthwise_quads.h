// INT8 depthwise convolution with an instruction that sums up four products of bytes: four rows of taps at a time.
#pragma once

#include <cstdint>

#include "engine/platform/isa.h"

namespace pipit::internal {

/// Channels that a register of bytes holds.
inline constexpr int kQuadChannels = 64;
/// Output pixels of a tile.
inline constexpr int kQuadTile = 7;

/// A tile: up to kQuadTile neighbouring output pixels of one row, channels [0, channels), with the arithmetic of
/// layers/ops/quantization.h. Four input pixels below each other are interleaved channel by channel, so that one
/// VPDPBUSD meets four taps of 16 channels; the order of channels that interleaving leaves is quad_lane()'s, and
/// packing the results undoes it.
struct QuadTile {
  /// [columns of input, (kQuadTile - 1) * stride + kernel][4 * quads rows of taps], each the first channel of a pixel.
  /// Any pixel will do where weights are zero.
  const std::uint8_t* const* pixels = nullptr;
  /// [blocks of 64 channels][quads][kernel columns][4 vectors][16 channels][4 rows]
  const std::int8_t* weights = nullptr;
  /// [blocks][4 vectors][16 channels], with the input's zero point folded in.
  const std::int32_t* bias = nullptr;
  const float* multiplier = nullptr;
  std::uint8_t* y = nullptr;
  std::int64_t y_step = 0;  ///< bytes from pixel to pixel
  std::int64_t channels = 0;
  std::int64_t columns = 0;  ///< pixels to store
  float low = 0;             ///< bounds, in steps of y
  float high = 0;
  /// The zero point of y as u8. i8 is that with a zero point higher by 128, every result then xor `turned` = 0x80.
  int zero_point = 0;
  std::uint8_t turned = 0;
};

/// Where channel c of 64 is after interleaving: [vector][lane].
constexpr int quad_lane(int channel) {
  return channel % 16 / 4 * 16 + channel / 16 * 4 + channel % 4;
}

struct QuadKernels {
  using Function = void (*)(const QuadTile& tile);
  /// [(kernel columns - 3) / 2: 3, 5, 7][stride - 1: 1, 2], each with as many rows of taps, in one or two quads.
  Function tile[3][2];
};

/// Null where the instruction set has no such instruction on 512 bits.
const QuadKernels* quad_kernels(Isa isa = chosen_isa());

}  // namespace pipit::internal
