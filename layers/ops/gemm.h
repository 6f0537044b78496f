// Fully connected layers (ONNX Gemm).
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/clamp.h"

namespace pipit::internal {

struct GemmAttributes {
  float alpha = 1.0F;
  float beta = 1.0F;
  bool transpose_a = false;
  bool transpose_b = false;
  Clamp activation;
};

/// y = activation(alpha * A' * B' + beta * C). Inputs: A [M, K] ([K, M] if transposed), B [K, N] ([N, K]),
/// C broadcastable to [M, N] (optional).
class Gemm final : public LayerOf<Gemm, GemmAttributes> {
 public:
  static constexpr std::string_view kType = "Gemm";
  explicit Gemm(GemmAttributes attributes);

  LayerTraits traits() const override { return {.family = LayerFamily::linear, .weights = 1}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
