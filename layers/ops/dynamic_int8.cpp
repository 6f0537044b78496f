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
  if (x.shape.rank() == 0) fail("DynamicQuantize: x is a scalar");
  const std::int64_t scales = attributes_.per_sample ? x.shape[0] : 1;
  return {{x.shape, kDynamicBytes.dtype}, {Shape{scales}, DType::f32}};
}

bool DynamicQuantize::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && attributes_.per_sample;
}

std::string DynamicQuantize::summary() const {
  return attributes_.per_sample ? "per sample" : "per tensor";
}

DynamicQConv::DynamicQConv(DynamicQConvAttributes attributes) : LayerOf(std::move(attributes)) {
  for (const float scale : attributes_.weight_scales) {
    if (!(scale > 0) || !std::isfinite(scale))
      fail("DynamicQConv: a weight scale is {}; expected a positive number", scale);
  }
}

std::vector<TensorDesc> DynamicQConv::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 3);
  // The geometry is that of the static layer.
  QConvAttributes static_attributes;
  static_attributes.conv = attributes_.conv;
  static_attributes.x = kDynamicBytes;
  static_attributes.weight_scales = attributes_.weight_scales;
  const TensorDesc y = QConv(std::move(static_attributes)).infer(inputs.first(2))[0];
  if (const TensorDesc* bias = optional_input(inputs, 2))
    check_operand(*bias, Shape{y.shape[1]}, DType::f32, kType, "bias");
  if (const TensorDesc* residual = optional_input(inputs, kResidual))
    check_operand(*residual, y.shape, DType::f32, kType, "residual");
  const TensorDesc* scales = optional_input(inputs, kScales);
  if (scales == nullptr) fail("DynamicQConv: input {} (scales) is required but absent", kScales);
  const std::int64_t count = scales->elements();
  if (count < 1 || y.shape[0] % count != 0)
    fail("DynamicQConv: {} scales for a batch of {}", count, y.shape[0]);
  check_operand(*scales, Shape{count}, DType::f32, kType, "scales");
  return {y};
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

}  // namespace pipit::internal
