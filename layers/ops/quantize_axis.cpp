#include "layers/ops/quantize_axis.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/quantization.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

void check(const AxisQuantization& q, std::string_view layer) {
  if (q.scales.empty() || q.scales.size() != q.zero_points.size())
    fail("{}: {} scales and {} zero points", layer, q.scales.size(), q.zero_points.size());
  for (std::size_t i = 0; i < q.scales.size(); ++i) {
    if (q.dtype == DType::i32) {
      if (q.zero_points[i] != 0) fail("{}: the zero point of i32 is {}, not 0", layer, q.zero_points[i]);
      check_quantization({q.scales[i], 0, DType::i8}, layer, "the tensor");
    } else {
      if (q.dtype == DType::f32) fail("{}: expected i8, u8 or i32, got f32", layer);
      check_quantization({q.scales[i], q.zero_points[i], q.dtype}, layer, "the tensor");
    }
  }
}

void check_axis(const AxisQuantization& q, const Shape& shape, std::string_view layer) {
  if (q.per_tensor()) return;
  if (q.axis < 0 || q.axis >= shape.rank())
    fail("{}: axis {} of a tensor of shape {}", layer, q.axis, shape.str());
  const std::int64_t extent = shape[static_cast<int>(q.axis)];
  if (extent != static_cast<std::int64_t>(q.scales.size()))
    fail("{}: {} scales for axis {} of {}", layer, q.scales.size(), q.axis, shape.str());
}

std::string summary_of(const AxisQuantization& q) {
  return q.per_tensor()
             ? fmt::format("{} scale {:.4g} zero {}", dtype_name(q.dtype), q.scales[0], q.zero_points[0])
             : fmt::format("{} {} scales, axis {}", dtype_name(q.dtype), q.scales.size(), q.axis);
}

}  // namespace

QuantizeAxis::QuantizeAxis(AxisQuantization y) : LayerOf(std::move(y)) {
  if (attributes_.dtype == DType::i32) fail("QuantizeAxis: the output is i32; expected i8 or u8");
  check(attributes_, kType);
}

std::vector<TensorDesc> QuantizeAxis::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, DType::f32, kType, "x");
  check_axis(attributes_, inputs[0]->shape, kType);
  return {{inputs[0]->shape, attributes_.dtype}};
}

bool QuantizeAxis::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && (attributes_.per_tensor() || attributes_.axis != 0);
}

std::string QuantizeAxis::summary() const {
  return summary_of(attributes_);
}

DequantizeAxis::DequantizeAxis(AxisQuantization x) : LayerOf(std::move(x)) {
  check(attributes_, kType);
}

std::vector<TensorDesc> DequantizeAxis::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.dtype, kType, "x");
  check_axis(attributes_, inputs[0]->shape, kType);
  return {{inputs[0]->shape, DType::f32}};
}

bool DequantizeAxis::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && (attributes_.per_tensor() || attributes_.axis != 0);
}

std::string DequantizeAxis::summary() const {
  return summary_of(attributes_);
}

}  // namespace pipit::internal
