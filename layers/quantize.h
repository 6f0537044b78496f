// Between floating point and INT8 (ONNX QuantizeLinear and DequantizeLinear with one scale per tensor).
#pragma once

#include "engine/layer.h"
#include "layers/quantisation.h"

namespace pipit {

/// Inputs: x (f32). y = requantise(x / scale) of the output's type.
class Quantize final : public Layer {
 public:
  static constexpr std::string_view kType = "Quantize";
  explicit Quantize(Quantisation y);
  const Quantisation& y() const { return y_; }

  std::string_view type() const override { return kType; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool keeps_samples_apart(const SampledInputs& inputs) const override;
  std::string summary() const override;

 private:
  Quantisation y_;
};

/// Inputs: x (i8 or u8). y = (x - zero_point) * scale in f32.
class Dequantize final : public Layer {
 public:
  static constexpr std::string_view kType = "Dequantize";
  explicit Dequantize(Quantisation x);
  const Quantisation& x() const { return x_; }

  std::string_view type() const override { return kType; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool keeps_samples_apart(const SampledInputs& inputs) const override;
  std::string summary() const override;

 private:
  Quantisation x_;
};

}  // namespace pipit
