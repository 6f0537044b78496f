// An element-wise function on INT8.
#pragma once

#include <array>

#include "engine/graph/layer.h"
#include "layers/ops/quantization.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

struct QUnaryAttributes {
  UnaryAttributes function;
  Quantization x, y;
};

/// Dequantize, Unary and Quantize in one: r = float(x - x.zero_point) * x.scale, rounded to f32;
/// f = float(unary_value(function, r)), 0 where that is denormal; y = requantize(f / y.scale). A function of 256
/// values. Inputs: x (i8 or u8).
class QUnary final : public LayerOf<QUnary, QUnaryAttributes>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "QUnary";
  explicit QUnary(QUnaryAttributes attributes);

  const Quantization& output_quantization() const override { return attributes_.y; }
  LayerTraits traits() const override {
    return {.arithmetic = Arithmetic::integers, .channelwise = is_activation(attributes_.function.kind)};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool may_run_in_place(int /*index*/) const override { return true; }
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// The specification: the integer of y for the integer of x.
int quantized_unary(const QUnaryAttributes& attributes, int x);

/// The same for every byte of x, as bytes of y.
std::array<std::uint8_t, 256> unary_table(const QUnaryAttributes& attributes);

/// The function that changes nothing: the values of x as y has them.
QUnaryAttributes requantization(const Quantization& x, const Quantization& y);

}  // namespace pipit::internal
