// What the tiles of a convolution compute with: element types, and what is done to a sum before and after it is stored.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/tensor.h"
#include "engine/platform/products.h"
#include "layers/cpu/tile/byte_weights.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/ops/clamp.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// Weights in s8, and what layers/ops/qconv.h says of the operands.
struct ByteArithmetic {
  Quantization x, residual, y;
  std::vector<float> multipliers;  ///< [O], see requantization_multipliers()
  std::vector<std::int32_t> bias;  ///< [O], or empty
};

/// Made by one of the functions below.
struct TileArithmetic {
  const TileKernels* kernels = nullptr;
  Products products = Products::fp32;
  TileCall shared;  ///< the bounds and the types; for int8 and f16 its vectors are those below, of output 0
  DType stored = DType::f32;        ///< outputs in y, and residuals
  std::int64_t stored_bytes = 4;    ///< of an output in y
  std::int64_t result_bytes = 4;    ///< of one as tiles leave it
  std::int64_t residual_bytes = 4;  ///< of one as they read it
  bool rounds_results = false;      ///< tiles leave f32, which becomes 16 bits in y when it is complete
  bool widens_residual = false;     ///< 16 bits, which are made f32 for the tiles
  std::vector<float> multipliers;
  std::vector<std::int32_t> sum_bias;

  TileArithmetic() = default;
  TileArithmetic(TileArithmetic&&) = default;  // what `shared` points to stays where it is
  TileArithmetic& operator=(TileArithmetic&&) = default;
};

/// Sums in f32 of operands stored as f32, f16 or bf16.
TileArithmetic float_arithmetic(DType stored, const Clamp& activation, bool residual);
/// Products of `stored` elements, f16 or bf16, on kernels of f16_tiles() or bf16_tiles(). `more`: an epilogue follows,
/// for which results stay f32. The multipliers of f16, one for each of `channels` outputs, are for pack_f16() to fill
/// in.
TileArithmetic stored_arithmetic(DType stored, const TileKernels& kernels, const Clamp& activation,
                                 std::int64_t channels, bool more);
/// Products of bytes, with the bits of QConv's specification. `weights` [channels][depth].
TileArithmetic byte_arithmetic(const TileKernels& kernels, ByteArithmetic bytes, const Clamp& activation,
                               const ByteWeights& weights, std::int64_t channels, std::int64_t depth);

}  // namespace pipit::internal
