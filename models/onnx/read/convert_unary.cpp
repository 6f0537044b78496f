// Element-wise functions of one tensor: activations, Clip, mathematical functions, Not.
#include "layers/ops/unary.h"

#include <limits>

#include "layers/ops/binary.h"
#include "layers/ops/reshaping.h"

#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> emit_unary(NodeContext& node, const UnaryAttributes& attributes) {
  return {node.emit<Unary>({node.input(0)}, attributes)};
}

template <UnaryKind kind>
std::vector<ValueId> convert_unary(NodeContext& node) {
  return emit_unary(node, {kind});
}

template <UnaryKind kind>
std::vector<ValueId> convert_with_alpha(NodeContext& node) {
  constexpr float kDefault = kind == UnaryKind::leaky_relu ? 0.01F : 1.0F;
  return emit_unary(node, {kind, node.attributes().number("alpha", kDefault)});
}

std::vector<ValueId> convert_selu(NodeContext& node) {
  return emit_unary(node, {UnaryKind::selu, node.attributes().number("alpha", 1.67326319217681884765625F),
                           node.attributes().number("gamma", 1.05070102214813232421875F)});
}

std::vector<ValueId> convert_hard_sigmoid(NodeContext& node) {
  return emit_unary(node, {UnaryKind::hard_sigmoid, node.attributes().number("alpha", 0.2F),
                           node.attributes().number("beta", 0.5F)});
}

std::vector<ValueId> convert_shrink(NodeContext& node) {
  return emit_unary(node, {UnaryKind::shrink, node.attributes().number("lambd", 0.5F),
                           node.attributes().number("bias", 0)});
}

std::vector<ValueId> convert_gelu(NodeContext& node) {
  const std::string form = node.attributes().text("approximate", "none");
  if (form != "none" && form != "tanh") fail("attribute 'approximate' is '{}', expected none or tanh", form);
  return emit_unary(node, {form == "tanh" ? UnaryKind::gelu_tanh : UnaryKind::gelu});
}

std::vector<ValueId> convert_swish(NodeContext& node) {
  return emit_unary(node, swish(node.attributes().number("alpha", 1)));
}

// com.microsoft, with a default of its own.
std::vector<ValueId> convert_quick_gelu(NodeContext& node) {
  return emit_unary(node, swish(node.attributes().number("alpha", 1.702F)));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<ValueId> convert_clip_of_attributes(NodeContext& node) {
  const double low = node.attributes().has("min") ? node.attributes().number("min", 0) : -kInfinity;
  const double high = node.attributes().has("max") ? node.attributes().number("max", 0) : kInfinity;
  return emit_unary(node, {UnaryKind::clip, low, high});
}

// Max and Min where a bound is computed at run time.
ValueId bounded(NodeContext& node, ValueId x, int bound, BinaryKind kind, const char* part) {
  if (!node.has_input(bound)) return x;
  if (node.input_shape(bound).elements() != 1)
    fail("the bound '{}' is {}, expected one number", node.value_name(node.input(bound)),
         node.desc(node.input(bound)).str());
  const ValueId number = node.emit(std::make_shared<Reshape>(ReshapeAttributes{Shape{}}), {node.input(bound)},
                                   kind == BinaryKind::max ? "min" : "max");
  return node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {x, number}, part);
}

std::vector<ValueId> convert_clip_of_inputs(NodeContext& node) {
  const auto is_computed = [&](int bound) { return node.has_input(bound) && node.known(bound) == nullptr; };
  if (is_computed(1) || is_computed(2)) {
    const ValueId low = bounded(node, node.input(0), 1, BinaryKind::max, node.has_input(2) ? "low" : nullptr);
    return {bounded(node, low, 2, BinaryKind::min, nullptr)};
  }
  const double low = node.has_input(1) ? node.constant_number(1, "min") : -kInfinity;
  const double high = node.has_input(2) ? node.constant_number(2, "max") : kInfinity;
  return emit_unary(node, {UnaryKind::clip, low, high});
}

constexpr Operator kUnaryOperators[] = {
    {"Abs", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::abs>},
    {"Acos", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::acos>},
    {"Acosh", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::acosh>},
    {"Asin", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::asin>},
    {"Asinh", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::asinh>},
    {"Atan", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::atan>},
    {"Atanh", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::atanh>},
    {"Ceil", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::ceil>},
    {"Celu", 12, kLastOpset, 1, 1, convert_with_alpha<UnaryKind::celu>},
    {"Clip", 11, kLastOpset, 1, 3, convert_clip_of_inputs},
    {"Clip", 6, 10, 1, 1, convert_clip_of_attributes},
    {"Cos", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::cos>},
    {"Cosh", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::cosh>},
    {"Elu", 6, kLastOpset, 1, 1, convert_with_alpha<UnaryKind::elu>},
    {"Erf", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::erf>},
    {"Exp", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::exp>},
    {"Floor", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::floor>},
    {"Gelu", 20, kLastOpset, 1, 1, convert_gelu},
    {"HardSigmoid", 6, kLastOpset, 1, 1, convert_hard_sigmoid},
    {"HardSwish", 14, kLastOpset, 1, 1, convert_unary<UnaryKind::hard_swish>},
    {"LeakyRelu", 6, kLastOpset, 1, 1, convert_with_alpha<UnaryKind::leaky_relu>},
    {"Log", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::log>},
    {"Mish", 18, kLastOpset, 1, 1, convert_unary<UnaryKind::mish>},
    {"Neg", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::neg>},
    {"Not", 1, kLastOpset, 1, 1, convert_unary<UnaryKind::logical_not>},
    {"Reciprocal", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::reciprocal>},
    {"Relu", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::relu>},
    {"Round", 11, kLastOpset, 1, 1, convert_unary<UnaryKind::round>},
    {"Selu", 6, kLastOpset, 1, 1, convert_selu},
    {"Shrink", 9, kLastOpset, 1, 1, convert_shrink},
    {"Sigmoid", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::sigmoid>},
    {"Sign", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::sign>},
    {"Sin", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::sin>},
    {"Sinh", 9, kLastOpset, 1, 1, convert_unary<UnaryKind::sinh>},
    {"Softplus", 1, kLastOpset, 1, 1, convert_unary<UnaryKind::softplus>},
    {"Softsign", 1, kLastOpset, 1, 1, convert_unary<UnaryKind::softsign>},
    {"Sqrt", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::sqrt>},
    {"Swish", 24, kLastOpset, 1, 1, convert_swish},
    {"Tan", 7, kLastOpset, 1, 1, convert_unary<UnaryKind::tan>},
    {"Tanh", 6, kLastOpset, 1, 1, convert_unary<UnaryKind::tanh>},
    {"ThresholdedRelu", 10, kLastOpset, 1, 1, convert_with_alpha<UnaryKind::thresholded_relu>},
    {"com.microsoft::QuickGelu", 1, kLastOpset, 1, 1, convert_quick_gelu},
};

}  // namespace

std::span<const Operator> unary_operators() {
  return kUnaryOperators;
}

}  // namespace pipit::internal::onnx
