#include "layers/ops/dynamic_int8.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/qconv.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

std::vector<TensorDesc> DynamicQuantize::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  check_operand(x, x.shape, DType::f32, kType, "x");
  if (x.shape.rank() == 0 && !attributes_.affine) fail("DynamicQuantize: x is a scalar");
  if (attributes_.affine) return {{x.shape, DType::u8}, {Shape{}, DType::f32}, {Shape{}, DType::u8}};
  if (attributes_.type != DType::u8 && attributes_.type != DType::i8)
    fail("DynamicQuantize: to {}; expected u8 or i8", dtype_name(attributes_.type));
  const std::int64_t scales = attributes_.per_sample ? x.shape[0] : 1;
  return {{x.shape, attributes_.type}, {Shape{scales}, DType::f32}};
}

bool DynamicQuantize::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && attributes_.per_sample && !attributes_.affine;
}

std::string DynamicQuantize::summary() const {
  if (attributes_.affine) return "per tensor, with a zero point";
  return attributes_.per_sample ? "per sample" : "per tensor";
}

DynamicQConv::DynamicQConv(DynamicQConvAttributes attributes) : LayerOf(std::move(attributes)) {
  for (const float scale : attributes_.weight_scales) {
    if (!(scale > 0) || !std::isfinite(scale))
      fail("DynamicQConv: a weight scale is {}; expected a positive number", scale);
  }
}

std::vector<TensorDesc> DynamicQConv::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 5);
  const TensorDesc& q = *inputs[0];
  const TensorDesc* zero_point = optional_input(inputs, kZeroPoint);
  if (q.dtype != DType::u8 && q.dtype != DType::i8)
    fail("DynamicQConv: q is {}; expected u8 or i8", dtype_name(q.dtype));
  if (zero_point != nullptr && (zero_point->dtype != q.dtype || zero_point->elements() != 1))
    fail("DynamicQConv: the zero point is {}; expected one {}", zero_point->str(), dtype_name(q.dtype));
  TensorDesc weights = *inputs[1];
  if (weights.dtype == DType::u8) weights.dtype = DType::i8;
  // The geometry is that of the static layer.
  QConvAttributes static_attributes;
  static_attributes.conv = attributes_.conv;
  static_attributes.x = kDynamicBytes;
  static_attributes.weight_scales = attributes_.weight_scales;
  static_attributes.x.dtype = q.dtype;
  static_attributes.x.zero_point = 0;
  const std::array<const TensorDesc*, 2> operands{&q, &weights};
  const TensorDesc y = QConv(std::move(static_attributes)).infer(operands)[0];
  check_zero_points(weights.shape);
  if (const TensorDesc* bias = optional_input(inputs, 2))
    check_operand(*bias, Shape{y.shape[1]}, DType::f32, kType, "bias");
  if (const TensorDesc* residual = optional_input(inputs, kResidual))
    check_operand(*residual, y.shape, DType::f32, kType, "residual");
  const TensorDesc* scales = optional_input(inputs, kScales);
  if (scales == nullptr) fail("DynamicQConv: input {} (scales) is required but absent", kScales);
  const std::int64_t count = scales->elements();
  if (count < 1 || y.shape[0] % count != 0)
    fail("DynamicQConv: {} scales for a batch of {}", count, y.shape[0]);
  if (zero_point != nullptr && count != 1)
    fail("DynamicQConv: {} scales with a zero point; expected 1", count);
  if (scales->shape.rank() > 0) check_operand(*scales, Shape{count}, DType::f32, kType, "scales");
  if (scales->dtype != DType::f32) fail("DynamicQConv: scales are {}", dtype_name(scales->dtype));
  if (const TensorDesc* bias = optional_input(inputs, kSumBias))
    check_operand(*bias, Shape{y.shape[1]}, DType::i32, kType, "the bias of sums");
  return {y};
}

void DynamicQConv::check_zero_points(const Shape& weights) const {
  const auto count = static_cast<std::int64_t>(attributes_.weight_zero_points.size());
  if (count == 0) return;
  if (count != 1 && count != weights[0])
    fail("DynamicQConv: {} zero points of weights for {} output channels", count, weights[0]);
  const std::int64_t depth = weights.elements() / std::max<std::int64_t>(weights[0], 1);
  if (depth >= kMaxAffineDepth)
    fail_unsupported("DynamicQConv: {} products per output may overflow int32 (fewer than {})", depth,
                     kMaxAffineDepth);
}

bool DynamicQConv::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, kResidual, kScales});
}

Work DynamicQConv::work(std::span<const TensorDesc* const> inputs,
                        std::span<const TensorDesc> outputs) const {
  return Conv(attributes_.conv).work(inputs, outputs);
}

std::string DynamicQConv::summary() const {
  return Conv(attributes_.conv).summary();
}

std::vector<float> scales_of_outputs(const DynamicQConvAttributes& attributes, std::int64_t outputs) {
  const std::vector<float>& scales = attributes.weight_scales;
  return scales.size() == 1 ? std::vector<float>(static_cast<std::size_t>(outputs), scales[0]) : scales;
}

std::vector<int> zero_points_of_outputs(const DynamicQConvAttributes& attributes, std::int64_t outputs) {
  const std::vector<int>& zero_points = attributes.weight_zero_points;
  if (zero_points.size() > 1) return zero_points;
  return std::vector<int>(static_cast<std::size_t>(outputs), zero_points.empty() ? 0 : zero_points[0]);
}

}  // namespace pipit::internal
