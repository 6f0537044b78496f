// Products with weights that are stored as integers of 8 or 4 bits (layers/ops/weight_only.h) or as floats of 16: a
// panel of outputs times a few rows, which is bound by the bytes of the weights, and panels of integers made f32 for
// the tile kernel.
//
// A panel of packed weights is [blocks of 8 k][panel]: of 8 bits a block is 8 x width signed bytes, of 4 bits `width`
// words of 32 bits whose half-byte j is weight 8 * block + j, of f16 and bf16 it is 8 x width of them; width as
// in tile_pack.h, what is missing is 0. Every instruction set decodes a block in registers. Sums are formed per group
// of weights that share a scale, and scaled when the group is complete; floats have none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layers/cpu/tile/tile_kernel.h"

namespace pipit::internal {

inline constexpr int kPackedBlock = 8;
inline constexpr int kMaxPackedRows = 8;

/// One panel and rows [0, rows), evenly spaced. Strides are in elements.
struct PackedCall {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const std::byte* weights = nullptr;  ///< the panel
  const float* scales = nullptr;       ///< [groups][width]; floats: not read
  std::int64_t depth = 0;              ///< K
  std::int64_t group = 0;              ///< weights that share a scale; a multiple of 8, or at least K
  float* y = nullptr;                  ///< output 0 of the panel, first row
  std::int64_t y_stride = 0;
  const float* residual = nullptr;  ///< strided as y, or null
  /// Epilogue: columns, bias, low and high.
  TileCall finish;
};

/// The kernels of one instruction set; lanes and panels are those of its f32 tile kernels.
struct PackedKernels {
  using Multiply = void (*)(const PackedCall& call);
  using Widen = void (*)(const PackedCall& call, float* to);
  Isa isa;
  int rows;  ///< most rows of a call
  /// [is 4 bits][rows - 1][vectors - 1]
  Multiply multiply[2][kMaxPackedRows][kMaxTileVectors];
  /// The same for floats of 16 bits. [is bf16][rows - 1][vectors - 1]
  Multiply multiply_floats[2][kMaxPackedRows][kMaxTileVectors];
  /// The panel in f32, integer times scale, in the order of pack_f32_panel(). [is 4 bits][vectors - 1]
  Widen widen[2][kMaxTileVectors];
};

/// For `isa`, or the best that it contains. isa must be available.
const PackedKernels& packed_kernels(Isa isa = chosen_isa());

}  // namespace pipit::internal
