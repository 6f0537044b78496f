#include "models/onnx/read/quantized_operand.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/common/dispatch.h"
#include "layers/ops/quantize.h"

namespace pipit::internal::onnx {

namespace {

std::vector<int> integers_of(const Tensor& tensor) {
  std::vector<int> values;
  with_dtype(tensor.desc().dtype, [&]<typename T>(std::type_identity<T>) {
    for (const T value : tensor.values<T>()) values.push_back(static_cast<int>(value));
  });
  return values;
}

constexpr float kMinScale = std::numeric_limits<float>::min();

// "'w'", or "channel 3 of 'w'".
std::string place(const std::string& name, const AxisQuantization& q, std::size_t channel) {
  return q.per_tensor() ? fmt::format("'{}'", name) : fmt::format("channel {} of '{}'", channel, name);
}

// Sessions take denormal numbers for zero, and with such a scale every value would be. A constant is dequantized while
// reading, where they are what they are; a scale of 0 (TensorRT's exporter gives it to channels of zeros) means 0, and
// the smallest number there is does it.
AxisQuantization with_usable_scales(NodeContext& node, ValueId tensor, AxisQuantization q) {
  const bool constant = node.is_constant_value(tensor);
  for (std::size_t i = 0; i < q.scales.size(); ++i) {
    if (q.scales[i] >= kMinScale) continue;
    if (!constant) {
      fail_unsupported("the scale of {} is {:.3g}, below {:.3g}, the smallest normal number of 32 bits",
                       place(node.value_name(tensor), q, i), q.scales[i], kMinScale);
    }
    if (q.scales[i] == 0) q.scales[i] = std::numeric_limits<float>::denorm_min();
  }
  return q;
}

}  // namespace

AxisQuantization read_quantization(NodeContext& node, int scale, int zero_point, DType absent,
                                   const Shape& shape, std::int64_t axis) {
  AxisQuantization q;
  const auto scales = node.constant(scale, "scale");
  if (scales->desc().dtype != DType::f32) fail_unsupported("a scale of {}", dtype_name(scales->desc().dtype));
  if (scales->shape().rank() > 1 && scales->shape().elements() != 1)
    fail_unsupported("scales of shape {}: blocked quantization", scales->shape().str());
  q.scales.assign(scales->values<float>().begin(), scales->values<float>().end());
  for (std::size_t i = 0; i < q.scales.size(); ++i) {
    if (!(q.scales[i] >= 0) || !std::isfinite(q.scales[i])) {
      fail("the scale of {} is {:.3g} ('{}'); expected a positive number",
           place(node.value_name(node.input(scale - 1)), q, i), q.scales[i],
           node.value_name(node.input(scale)));
    }
  }
  q.dtype = absent;
  q.zero_points.assign(q.scales.size(), 0);
  if (node.has_input(zero_point)) {
    const auto zero = node.constant(zero_point, "zero point");
    q.dtype = zero->desc().dtype;
    if (q.dtype != DType::i8 && q.dtype != DType::u8 && q.dtype != DType::i32)
      fail_unsupported("a zero point of {}", dtype_name(q.dtype));
    q.zero_points = integers_of(*zero);
    // One zero point serves all scales, and one scale all zero points.
    if (q.zero_points.size() == 1) q.zero_points.resize(q.scales.size(), q.zero_points[0]);
    if (q.scales.size() == 1 && !q.zero_points.empty()) q.scales.resize(q.zero_points.size(), q.scales[0]);
    if (q.zero_points.size() != q.scales.size())
      fail("{} scales, but {} zero points", q.scales.size(), q.zero_points.size());
  }
  if (q.per_tensor()) return q;
  const std::int64_t rank = shape.rank();
  if (axis < -rank || axis >= rank) fail("axis {} of a tensor of shape {}", axis, shape.str());
  q.axis = axis < 0 ? axis + rank : axis;
  return q;
}

AxisQuantization bias_quantization(AxisQuantization weights, float factor) {
  for (float& scale : weights.scales) {
    const float product = scale == 0 ? std::numeric_limits<float>::denorm_min() : scale * factor;
    if (!(product > 0) || !std::isfinite(product))
      fail_unsupported("the scale of the bias, {:.3g} * {:.3g}, leaves the numbers of 32 bits", scale,
                       factor);
    scale = product;
  }
  weights.dtype = DType::i32;
  weights.zero_points.assign(weights.scales.size(), 0);
  return weights;
}

ValueId dequantized(NodeContext& node, ValueId integers, const AxisQuantization& given, const char* part) {
  const AxisQuantization q = with_usable_scales(node, integers, given);
  if (!q.per_tensor() || q.dtype == DType::i32)
    return node.emit(std::make_shared<DequantizeAxis>(q), {integers}, part);
  const Quantization x{q.scales[0], q.zero_points[0], q.dtype, !node.narrow_range()};
  return node.emit(std::make_shared<Dequantize>(x), {integers}, part);
}

ValueId dequantized_input(NodeContext& node, int x, const char* part, std::int64_t axis) {
  const TensorDesc& desc = node.desc(node.input(x));
  return dequantized(node, node.input(x), read_quantization(node, x + 1, x + 2, desc.dtype, desc.shape, axis),
                     part);
}

ValueId quantized(NodeContext& node, ValueId real, const AxisQuantization& given, const char* part) {
  const AxisQuantization q = with_usable_scales(node, real, given);
  if (!q.per_tensor()) return node.emit(std::make_shared<QuantizeAxis>(q), {real}, part);
  const Quantization y{q.scales[0], q.zero_points[0], q.dtype, !node.narrow_range()};
  return node.emit(std::make_shared<Quantize>(y), {real}, part);
}

ValueId quantized_output(NodeContext& node, ValueId real, int scale) {
  return quantized(node, real, read_quantization(node, scale, scale + 1, DType::u8, node.desc(real).shape),
                   "quantize");
}

}  // namespace pipit::internal::onnx
