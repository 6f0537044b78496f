// Between floating point and integers with a scale per index of one dimension, as quantized weights and biases have
// (ONNX QuantizeLinear and DequantizeLinear per axis).
#pragma once

#include <vector>

#include "engine/graph/layer.h"

namespace pipit::internal {

/// value = (q - zero_points[i]) * scales[i], i being the index along `axis`; a single scale holds for all elements.
struct AxisQuantization {
  DType dtype = DType::i8;
  std::vector<float> scales;
  std::vector<int> zero_points;  ///< as many as scales
  std::int64_t axis = 0;         ///< not negative; without meaning for a single scale

  bool per_tensor() const { return scales.size() == 1; }
};

/// Inputs: x (f32). y = requantize(x / scale) of the output's type (i8 or u8), over all of its range.
class QuantizeAxis final : public LayerOf<QuantizeAxis, AxisQuantization> {
 public:
  static constexpr std::string_view kType = "QuantizeAxis";
  explicit QuantizeAxis(AxisQuantization y);
  const AxisQuantization& y() const { return attributes(); }

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Inputs: x (i8, u8, or i32 with zero points 0). y = (x - zero_point) * scale in f32.
class DequantizeAxis final : public LayerOf<DequantizeAxis, AxisQuantization> {
 public:
  static constexpr std::string_view kType = "DequantizeAxis";
  explicit DequantizeAxis(AxisQuantization x);
  const AxisQuantization& x() const { return attributes(); }

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
