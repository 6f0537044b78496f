// Integers with a scale per block of neighbours along one dimension (ONNX DequantizeLinear with a block_size), as
// weights in 4 bits have.
#pragma once

#include <vector>

#include "engine/graph/layer.h"

namespace pipit::internal {

/// value = q * scale of its block. Scales are row-major, of the tensor's shape with ceil(extent / block) instead of the
/// extent along `axis`; the last block may be shorter. A scale may be 0 or negative.
struct BlockQuantization {
  std::vector<float> scales;
  std::int64_t axis = 0;  ///< not negative
  std::int64_t block = 1;
};

/// Inputs: x (i8). y = the values in f32.
class DequantizeBlocks final : public LayerOf<DequantizeBlocks, BlockQuantization> {
 public:
  static constexpr std::string_view kType = "DequantizeBlocks";
  explicit DequantizeBlocks(BlockQuantization x);
  const BlockQuantization& x() const { return attributes(); }

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
