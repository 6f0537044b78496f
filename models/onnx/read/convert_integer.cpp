// ConvInteger, MatMulInteger and DynamicQuantizeLinear. The products of the first two are summed up in f32, which is
// exact up to 2^24 and rounds sums beyond: to what the Cast to float that follows them in models would make of them.
#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reduce.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

ValueId cast(NodeContext& node, ValueId x, DType to, const char* part = nullptr) {
  return node.emit(std::make_shared<Cast>(CastAttributes{to}), {x}, part);
}

ValueId binary(NodeContext& node, BinaryKind kind, ValueId a, ValueId b, const char* part) {
  return node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {a, b}, part);
}

// Input `x` less its zero point, in f32. A list of zero points holds along `axis`.
ValueId steps(NodeContext& node, int x, int zero_point, const char* part, std::int64_t axis) {
  const TensorDesc& desc = node.desc(node.input(x));
  if (!node.has_input(zero_point) || node.known(zero_point) != nullptr) {
    AxisQuantization q{desc.dtype, {1.0F}, {0}, 0};
    if (node.has_input(zero_point)) {
      const auto zero = node.known(zero_point);
      if (zero->desc().dtype != desc.dtype)
        fail("the zero point is {}, the tensor {}", dtype_name(zero->desc().dtype), dtype_name(desc.dtype));
      if (zero->shape().rank() > 1 && zero->shape().elements() != 1)
        fail_unsupported("zero points of shape {}", zero->shape().str());
      q.zero_points.clear();
      for (std::int64_t i = 0; i < zero->shape().elements(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        q.zero_points.push_back(desc.dtype == DType::i8 ? zero->values<std::int8_t>()[at]
                                                        : int{zero->values<std::uint8_t>()[at]});
      }
      q.scales.assign(q.zero_points.size(), 1.0F);
      q.axis = axis;
    }
    return dequantized(node, node.input(x), q, part);
  }
  if (node.input_shape(zero_point).elements() != 1)
    fail_unsupported("zero points of shape {} that are computed at run time",
                     node.input_shape(zero_point).str());
  const std::string name = part;
  const ValueId zero = cast(node, node.input(zero_point), DType::f32, (name + "_zero_point").c_str());
  return binary(node, BinaryKind::sub, cast(node, node.input(x), DType::f32, (name + "_real").c_str()), zero,
                part);
}

std::vector<ValueId> convert_conv_integer(NodeContext& node) {
  const Shape& weights = node.input_shape(1);
  if (weights.rank() < 3) fail("weights {}: expected [output, input / group, kernel...]", weights.str());
  ConvAttributes attributes;
  attributes.window = read_window(node, weights.dims().subspan(2), "ConvInteger");
  attributes.groups = node.attributes().integer("group", 1);
  const ValueId x = steps(node, 0, 2, "x", 0);
  const ValueId w = steps(node, 1, 3, "w", 0);
  // Winograd's sums are not whole numbers, and Cast drops what is after the point.
  const ValueId sums = node.emit(std::make_shared<Unary>(UnaryAttributes{UnaryKind::round}),
                                 {node.emit<Conv>({x, w}, attributes)}, "whole");
  return {cast(node, sums, DType::i32, "sums")};
}

std::vector<ValueId> convert_matmul_integer(NodeContext& node) {
  const std::int64_t a_rank = node.input_shape(0).rank();
  const std::int64_t b_rank = node.input_shape(1).rank();
  const ValueId a = steps(node, 0, 2, "a", std::max<std::int64_t>(a_rank - 2, 0));
  const ValueId b = steps(node, 1, 3, "b", std::max<std::int64_t>(b_rank - 1, 0));
  return {cast(node, node.emit<MatMul>({a, b}), DType::i32, "sums")};
}

std::vector<ValueId> convert_dynamic_quantize(NodeContext& node) {
  return dynamically_quantized(node, node.input(0), nullptr);
}

constexpr Operator kIntegerOperators[] = {
    {"ConvInteger", 10, kLastOpset, 2, 4, convert_conv_integer},
    {"DynamicQuantizeLinear", 11, kLastOpset, 1, 1, convert_dynamic_quantize},
    {"MatMulInteger", 10, kLastOpset, 2, 4, convert_matmul_integer},
};

}  // namespace

// Scale (max - min) / 255 over the range of x widened to hold 0, as the operator's text spells it out. For a tensor of
// zeros the scale is 0, and the integers and the zero point are 0 (Cast makes 0 of NaN).
std::vector<ValueId> dynamically_quantized(NodeContext& node, ValueId x, const char* part) {
  const auto number = [&](float value, const char* what) {
    return node.add_constant(Tensor::scalar(value), what);
  };
  const auto unary = [&](UnaryAttributes attributes, ValueId of, const char* what) {
    return node.emit(std::make_shared<Unary>(attributes), {of}, what);
  };
  const auto extreme = [&](ReduceKind reduce, BinaryKind widen, ValueId zero, const char* what) {
    const std::string name = what;
    const ValueId found = node.emit(std::make_shared<Reduce>(ReduceAttributes{reduce, {}, false}), {x},
                                    (name + "_of_x").c_str());
    return binary(node, widen, found, zero, what);
  };
  constexpr UnaryAttributes kSaturate{UnaryKind::clip, 0, 255};
  const ValueId zero = number(0, "zero");
  const ValueId high = extreme(ReduceKind::max, BinaryKind::max, zero, "max");
  const ValueId low = extreme(ReduceKind::min, BinaryKind::min, zero, "min");
  const ValueId range = binary(node, BinaryKind::sub, high, low, "range");
  const ValueId scale = binary(node, BinaryKind::div, range, number(255, "steps"), "scale");
  const ValueId low_steps = binary(node, BinaryKind::div, low, scale, "low_steps");
  const ValueId shift = binary(node, BinaryKind::sub, zero, low_steps, "shift");
  const ValueId zero_point =
      unary({UnaryKind::round}, unary(kSaturate, shift, "saturated_shift"), "real_zero_point");
  const ValueId x_steps = binary(node, BinaryKind::div, x, scale, "x_steps");
  const ValueId rounded = unary({UnaryKind::round}, x_steps, "rounded");
  const ValueId shifted = binary(node, BinaryKind::add, rounded, zero_point, "shifted");
  const ValueId saturated = unary(kSaturate, shifted, "saturated");
  return {cast(node, saturated, DType::u8, part), scale, cast(node, zero_point, DType::u8, "zero_point")};
}

std::span<const Operator> integer_operators() {
  return kIntegerOperators;
}

}  // namespace pipit::internal::onnx
