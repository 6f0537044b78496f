// QuantizeLinear and DequantizeLinear.
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"

namespace pipit::internal::onnx {

namespace {

constexpr std::int64_t kUndefined = 0;  // TensorProto.DataType
constexpr std::int64_t kFloat32 = 1;

std::int64_t read_axis(NodeContext& node) {
  if (node.attributes().integer("block_size", 0) != 0)
    fail_unsupported("attribute 'block_size': blocked quantization");
  return node.attributes().integer("axis", 1);
}

// Scale and zero point (inputs 1 and 2) are computed at run time: one each, and the text of the operators in layers.
bool is_computed(NodeContext& node) {
  const bool computed = node.known(1) == nullptr || (node.has_input(2) && node.known(2) == nullptr);
  if (computed &&
      (node.input_shape(1).elements() != 1 || (node.has_input(2) && node.input_shape(2).elements() != 1)))
    fail_unsupported("scales of shape {} that are computed at run time", node.input_shape(1).str());
  return computed;
}

ValueId as_type(NodeContext& node, ValueId x, DType to, const char* part = nullptr) {
  if (node.desc(x).dtype == to) return x;
  return node.emit(std::make_shared<Cast>(CastAttributes{to}), {x}, part);
}

ValueId combine(NodeContext& node, BinaryKind kind, ValueId a, ValueId b, const char* part = nullptr) {
  return node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {a, b}, part);
}

ValueId quantized_at_run_time(NodeContext& node, DType absent) {
  const DType type = node.has_input(2) ? node.desc(node.input(2)).dtype : absent;
  if (type != DType::i8 && type != DType::u8)
    fail("the zero point is {}; expected u8 or i8", dtype_name(type));
  const ValueId x = as_type(node, node.input(0), DType::f32, "x");
  const ValueId steps = combine(node, BinaryKind::div, x, node.input(1), "steps");
  ValueId y = node.emit(std::make_shared<Unary>(UnaryAttributes{UnaryKind::round}), {steps}, "rounded");
  if (node.has_input(2))
    y = combine(node, BinaryKind::add, y, as_type(node, node.input(2), DType::f32, "zero_point"), "shifted");
  const double low = type == DType::i8 ? -128 : 0;
  const UnaryAttributes saturate{UnaryKind::clip, low, low + 255};
  return as_type(node, node.emit(std::make_shared<Unary>(saturate), {y}, "saturated"), type);
}

ValueId dequantized_at_run_time(NodeContext& node) {
  ValueId x = as_type(node, node.input(0), DType::f32, "x");
  if (node.has_input(2))
    x = combine(node, BinaryKind::sub, x, as_type(node, node.input(2), DType::f32, "zero_point"), "steps");
  return combine(node, BinaryKind::mul, x, node.input(1));
}

std::vector<ValueId> convert_quantize(NodeContext& node) {
  const std::int64_t axis = read_axis(node);
  node.attributes().ignore({"saturate"});  // says something about 8-bit floats only
  if (const std::int64_t precision = node.attributes().integer("precision", kUndefined);
      precision != kUndefined && precision != kFloat32)
    fail_unsupported("attribute 'precision' is {}; division in float32 is supported", precision);
  const std::int64_t type = node.attributes().integer("output_dtype", kUndefined);
  const DType absent = type == kUndefined ? DType::u8 : dtype_from_onnx(static_cast<std::int32_t>(type));
  if (is_computed(node)) return {quantized_at_run_time(node, absent)};
  const AxisQuantization q = read_quantization(node, 1, 2, absent, node.input_shape(0), axis);
  if (type != kUndefined && q.dtype != absent)
    fail("attribute 'output_dtype' is {}, but the zero point is {}", dtype_name(absent), dtype_name(q.dtype));
  if (q.dtype == DType::i32) fail("the zero point is i32; expected u8 or i8");
  return {quantized(node, as_type(node, node.input(0), DType::f32, "x"), q)};
}

std::vector<ValueId> convert_dequantize(NodeContext& node) {
  const std::int64_t axis = read_axis(node);
  if (const std::int64_t type = node.attributes().integer("output_dtype", kUndefined);
      type != kUndefined && type != kFloat32)
    fail_unsupported("attribute 'output_dtype' is {}; float32 is supported", type);
  if (is_computed(node)) return {dequantized_at_run_time(node)};
  const TensorDesc& x = node.desc(node.input(0));
  return {dequantized(node, node.input(0), read_quantization(node, 1, 2, x.dtype, x.shape, axis))};
}

constexpr Operator kQuantizeOperators[] = {
    {"DequantizeLinear", 10, kLastOpset, 2, 3, convert_dequantize},
    {"QuantizeLinear", 10, kLastOpset, 2, 3, convert_quantize},
    // ONNX Runtime's own, from before ONNX had all their types.
    {"com.microsoft::DequantizeLinear", 1, kLastOpset, 2, 3, convert_dequantize},
    {"com.microsoft::QuantizeLinear", 1, kLastOpset, 2, 3, convert_quantize},
};

}  // namespace

std::span<const Operator> quantize_operators() {
  return kQuantizeOperators;
}

}  // namespace pipit::internal::onnx
