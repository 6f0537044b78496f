// Between floating point and INT8 (ONNX QuantizeLinear and DequantizeLinear with one scale per tensor).
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// Inputs: x (f32). y = requantize(x / scale) of the output's type.
class Quantize final : public LayerOf<Quantize, Quantization>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "Quantize";
  explicit Quantize(Quantization y);
  const Quantization& y() const { return attributes(); }

  const Quantization& output_quantization() const override { return attributes_; }
  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between, .channelwise = true}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Inputs: x (i8 or u8). y = (x - zero_point) * scale in f32.
class Dequantize final : public LayerOf<Dequantize, Quantization> {
 public:
  static constexpr std::string_view kType = "Dequantize";
  explicit Dequantize(Quantization x);
  const Quantization& x() const { return attributes(); }

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between, .channelwise = true}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
