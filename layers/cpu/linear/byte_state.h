// Products of a state that is quantized as it comes with weights in 8 bits.
#pragma once

#include <cstdint>

#include "engine/plan/kernel.h"
#include "layers/cpu/tile/split_weights.h"
#include "layers/cpu/tile/tile_convolution.h"

namespace pipit::internal {

/// y += round(x) W^T, where x [inputs] is rounded as ONNX DynamicQuantizeLinear and DequantizeLinear leave it.
class ByteStateProduct {
 public:
  /// `weights` [outputs][inputs], in units of `scales` [outputs].
  ByteStateProduct(const SplitWeights& weights, std::span<const float> scales, std::int64_t inputs);

  std::size_t scratch_bytes() const;
  std::size_t packed_bytes() const { return convolution_.packed_bytes(); }
  /// In the caller's thread; `context.scratch` is aligned to 64 bytes.
  void add(const float* x, float* y, const RunContext& context) const;

 private:
  std::int64_t inputs_;
  TileConvolution convolution_;
  std::size_t state_at_, sum_bias_at_, multipliers_at_;
};

}  // namespace pipit::internal
