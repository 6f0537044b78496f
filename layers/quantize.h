// Between floating point and INT8 (ONNX QuantizeLinear and DequantizeLinear with one scale per tensor).
#pragma once

#include "engine/layer.h"
#include "layers/quantisation.h"

namespace pipit {

/// Inputs: x (f32). y = requantise(x / scale) of the output's type.
class Quantize final : public LayerOf<Quantize, Quantisation>, public QuantisedOutput {
 public:
  static constexpr std::string_view kType = "Quantize";
  explicit Quantize(Quantisation y);
  const Quantisation& y() const { return attributes(); }

  const Quantisation& output_quantisation() const override { return attributes_; }
  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool keeps_samples_apart(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Inputs: x (i8 or u8). y = (x - zero_point) * scale in f32.
class Dequantize final : public LayerOf<Dequantize, Quantisation> {
 public:
  static constexpr std::string_view kType = "Dequantize";
  explicit Dequantize(Quantisation x);
  const Quantisation& x() const { return attributes(); }

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool keeps_samples_apart(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit
