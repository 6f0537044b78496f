#include "layers/ops/qunary.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

QUnary::QUnary(QUnaryAttributes attributes) : LayerOf(attributes) {
  for (const auto& [q, name] : {std::pair{attributes_.x, "x"}, {attributes_.y, "y"}}) {
    check_quantization(q, kType, name);
    if (!q.quantized()) fail("QUnary: {} is not quantized", name);
  }
  if (attributes_.function.kind == UnaryKind::logical_not) fail("QUnary: not defined for logical_not");
}

std::vector<TensorDesc> QUnary::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.x.dtype, kType, "x");
  return {{inputs[0]->shape, attributes_.y.dtype}};
}

bool QUnary::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string QUnary::summary() const {
  const UnaryAttributes& f = attributes_.function;
  if (f.kind == UnaryKind::clip && f.alpha == -INFINITY && f.beta == INFINITY) {
    const Quantization& y = attributes_.y;
    return fmt::format("to {} scale {:.4g} zero {}", dtype_name(y.dtype), y.scale, y.zero_point);
  }
  return Unary(attributes_.function).summary();
}

int quantized_unary(const QUnaryAttributes& attributes, int x) {
  const Quantization& y = attributes.y;
  const float real = static_cast<float>(x - attributes.x.zero_point) * attributes.x.scale;
  auto value = static_cast<float>(unary_value(attributes.function, static_cast<double>(real)));
  // Whether the caller's CPU takes denormal numbers for zero must not show.
  if (std::fpclassify(value) == FP_SUBNORMAL) value = 0;
  return requantize(value / y.scale, step_bounds(y, -INFINITY, INFINITY), y.zero_point);
}

std::array<std::uint8_t, 256> unary_table(const QUnaryAttributes& attributes) {
  std::array<std::uint8_t, 256> table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int x = attributes.x.dtype == DType::i8 ? static_cast<std::int8_t>(byte) : byte;
    table[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(quantized_unary(attributes, x));
  }
  return table;
}

QUnaryAttributes requantization(const Quantization& x, const Quantization& y) {
  return {{UnaryKind::clip, -INFINITY, INFINITY}, x, y};
}

}  // namespace pipit::internal
