#include "layers/ops/qconv.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

// Above it a sum of products of u8 and s8 may leave int32.
constexpr std::int64_t kMaxDepth = (std::int64_t{1} << 31) / (255 * 128) - 1;

}  // namespace

QConv::QConv(QConvAttributes attributes) : LayerOf(std::move(attributes)) {
  check_quantization(attributes_.x, kType, "x");
  check_quantization(attributes_.y, kType, "y");
  check_quantization(attributes_.residual, kType, "the residual");
  if (!attributes_.x.quantized()) fail("QConv: x is not quantized");
  for (const float scale : attributes_.weight_scales) {
    if (!(scale > 0) || !std::isfinite(scale))
      fail("QConv: a weight scale is {}; expected a positive number", scale);
  }
}

std::vector<TensorDesc> QConv::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 2);
  if (inputs[0]->dtype != DType::f32)
    check_operand(*inputs[0], inputs[0]->shape, attributes_.x.dtype, kType, "x");
  check_operand(*inputs[1], inputs[1]->shape, DType::i8, kType, "weights");
  // The geometry is that of the layer in floating point.
  TensorDesc x = *inputs[0];
  TensorDesc weights = *inputs[1];
  x.dtype = weights.dtype = DType::f32;
  const std::array<const TensorDesc*, 2> real{&x, &weights};
  TensorDesc y = Conv(attributes_.conv).infer(real)[0];
  const std::int64_t outputs = weights.shape[0];
  const std::size_t scales = attributes_.weight_scales.size();
  if (scales != 1 && scales != static_cast<std::size_t>(outputs))
    fail("QConv: {} weight scales for {} output channels; expected 1 or {}", scales, outputs, outputs);
  const std::int64_t depth = weights.shape.elements() / std::max<std::int64_t>(outputs, 1);
  if (depth > kMaxDepth) {
    fail_unsupported("QConv: {} products per output may overflow int32 (at most {})", depth, kMaxDepth);
  }
  if (const TensorDesc* bias = optional_input(inputs, 2))
    check_operand(*bias, Shape{outputs}, DType::i32, kType, "bias");
  y.dtype = attributes_.y.dtype;
  if (const TensorDesc* residual = optional_input(inputs, 3))
    check_operand(*residual, y.shape, attributes_.residual.dtype, kType, "residual");
  return {y};
}

bool QConv::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 3});
}

Work QConv::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  return Conv(attributes_.conv).work(inputs, outputs);
}

std::string QConv::summary() const {
  return Conv(attributes_.conv).summary();
}

std::vector<float> requantization_multipliers(const QConvAttributes& attributes, std::int64_t outputs) {
  std::vector<float> multipliers(static_cast<std::size_t>(outputs));
  const std::vector<float>& scales = attributes.weight_scales;
  for (std::size_t o = 0; o < multipliers.size(); ++o) {
    multipliers[o] = attributes.x.scale * (scales.size() == 1 ? scales[0] : scales[o]);
    if (attributes.y.quantized()) multipliers[o] /= attributes.y.scale;
  }
  return multipliers;
}

}  // namespace pipit::internal
