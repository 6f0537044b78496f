// Element-wise functions of several tensors with broadcasting.
#include "layers/ops/binary.h"
#include "layers/ops/unary.h"

#include <limits>

#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

template <BinaryKind kind>
std::vector<ValueId> convert_binary(NodeContext& node) {
  // Aligned at the last dimension, as all broadcasting is from opset 7 on. 'axis' would align it elsewhere.
  if (node.opset() < 7) node.attributes().ignore({"broadcast"});
  return {node.emit<Binary>({node.input(0), node.input(1)}, BinaryAttributes{kind})};
}

// One exponent for all is a function of one tensor, which has faster kernels and joins other layers.
std::vector<ValueId> convert_pow(NodeContext& node) {
  const DType type = node.desc(node.input(0)).dtype;
  const bool floating = type == DType::f32 || type == DType::f64;
  const Shape& exponent = node.input_shape(1);
  if (!floating || !node.is_constant(1) || exponent.elements() != 1 ||
      exponent.rank() > node.input_shape(0).rank()) {
    return convert_binary<BinaryKind::pow>(node);
  }
  if (node.opset() < 7) node.attributes().ignore({"broadcast"});
  return {node.emit<Unary>({node.input(0)},
                           UnaryAttributes{UnaryKind::pow, node.constant_number(1, "exponent")})};
}

std::vector<ValueId> convert_mod(NodeContext& node) {
  const bool fmod = node.attributes().flag("fmod", false);
  const DType type = node.desc(node.input(0)).dtype;
  if (!fmod && (type == DType::f32 || type == DType::f64)) {
    fail_unsupported("Mod of {} without attribute 'fmod' = 1", dtype_name(type));
  }
  return {node.emit<Binary>({node.input(0), node.input(1)},
                            BinaryAttributes{fmod ? BinaryKind::fmod : BinaryKind::mod})};
}

std::string numbered(const char* part, int index) {
  return fmt::format("{}_{}", part, index);
}

// f(f(f(a, b), c), d); a single input is passed on. The last step carries the node's name unless `more` follow.
ValueId chain(NodeContext& node, BinaryKind kind, bool more) {
  ValueId result = node.input(0);
  for (int i = 1; i < node.input_count(); ++i) {
    const std::string part = numbered(binary_name(kind).data(), i);
    const bool last = i + 1 == node.input_count() && !more;
    result = node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {result, node.input(i)},
                       last ? nullptr : part.c_str());
  }
  return result;
}

template <BinaryKind kind>
std::vector<ValueId> convert_variadic(NodeContext& node) {
  return {chain(node, kind, false)};
}

std::vector<ValueId> convert_mean(NodeContext& node) {
  if (node.input_count() == 1) return {node.input(0)};
  const ValueId sum = chain(node, BinaryKind::add, true);
  const double count = node.input_count();
  const DType type = node.desc(sum).dtype;
  if (type != DType::f32 && type != DType::f64) fail("Mean is not defined on {}", dtype_name(type));
  const ValueId divisor = node.add_constant(
      type == DType::f64 ? Tensor::scalar(count) : Tensor::scalar(static_cast<float>(count)), "count");
  return {node.emit<Binary>({sum, divisor}, BinaryAttributes{BinaryKind::div})};
}

std::vector<ValueId> convert_where(NodeContext& node) {
  return {node.emit<Where>({node.input(0), node.input(1), node.input(2)})};
}

// What is not equal to itself.
std::vector<ValueId> convert_is_nan(NodeContext& node) {
  Steps steps(node);
  const ValueId same = steps.binary(BinaryKind::equal, node.input(0), node.input(0));
  return {node.emit<Unary>({same}, UnaryAttributes{UnaryKind::logical_not})};
}

std::vector<ValueId> convert_is_inf(NodeContext& node) {
  Steps steps(node);
  const bool negative = node.attributes().flag("detect_negative", true);
  const bool positive = node.attributes().flag("detect_positive", true);
  const ValueId x = node.input(0);
  const auto equals = [&](double value) {
    return steps.binary(BinaryKind::equal, x, steps.number(steps.dtype(x), value));
  };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (negative && positive) {
    return {node.emit<Binary>({equals(kInf), equals(-kInf)}, BinaryAttributes{BinaryKind::logical_or})};
  }
  if (negative || positive) return {equals(positive ? kInf : -kInf)};
  return {steps.binary(BinaryKind::logical_and, equals(kInf), equals(-kInf))};
}

constexpr Operator kBinaryOperators[] = {
    {"Add", 6, kLastOpset, 2, 2, convert_binary<BinaryKind::add>},
    {"And", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::logical_and>},
    {"Div", 6, kLastOpset, 2, 2, convert_binary<BinaryKind::div>},
    {"Equal", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::equal>},
    {"Greater", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::greater>},
    {"GreaterOrEqual", 12, kLastOpset, 2, 2, convert_binary<BinaryKind::greater_equal>},
    {"IsInf", 10, kLastOpset, 1, 1, convert_is_inf},
    {"IsNaN", 9, kLastOpset, 1, 1, convert_is_nan},
    {"Less", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::less>},
    {"LessOrEqual", 12, kLastOpset, 2, 2, convert_binary<BinaryKind::less_equal>},
    {"Max", 6, kLastOpset, 1, kVariadic, convert_variadic<BinaryKind::max>},
    {"Mean", 6, kLastOpset, 1, kVariadic, convert_mean},
    {"Min", 6, kLastOpset, 1, kVariadic, convert_variadic<BinaryKind::min>},
    {"Mod", 10, kLastOpset, 2, 2, convert_mod},
    {"Mul", 6, kLastOpset, 2, 2, convert_binary<BinaryKind::mul>},
    {"Or", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::logical_or>},
    {"PRelu", 7, kLastOpset, 2, 2, convert_binary<BinaryKind::prelu>},
    {"Pow", 1, kLastOpset, 2, 2, convert_pow},
    {"Sub", 6, kLastOpset, 2, 2, convert_binary<BinaryKind::sub>},
    {"Sum", 6, kLastOpset, 1, kVariadic, convert_variadic<BinaryKind::add>},
    {"Where", 9, kLastOpset, 3, 3, convert_where},
    {"Xor", 1, kLastOpset, 2, 2, convert_binary<BinaryKind::logical_xor>},
};

}  // namespace

std::span<const Operator> binary_operators() {
  return kBinaryOperators;
}

}  // namespace pipit::internal::onnx
