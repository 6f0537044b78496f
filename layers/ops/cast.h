// Conversion between element types (ONNX Cast).
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct CastAttributes {
  DType to = DType::f32;
};

/// Inputs: x. Float to integer truncates toward zero; out of range saturates and NaN becomes 0 (ONNX leaves
/// both undefined). A narrower integer keeps the low bits. Anything to bool is x != 0.
class Cast final : public LayerOf<Cast, CastAttributes> {
 public:
  static constexpr std::string_view kType = "Cast";
  using LayerOf::LayerOf;

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
