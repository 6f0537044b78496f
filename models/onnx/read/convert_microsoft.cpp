// Operators of domain com.microsoft that ONNX Runtime's quantization writes: floating-point operators between
// Dequantize and Quantize. Inputs as its documentation gives them (docs/ContribOperators.md).
#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

// Inputs: a, scale, zero point; b likewise; scale and zero point of y.
template <BinaryKind kind>
std::vector<ValueId> convert_qbinary(NodeContext& node) {
  const ValueId a = dequantized_input(node, 0, "a");
  const ValueId b = dequantized_input(node, 3, "b");
  return {quantized_output(node, node.emit<Binary>({a, b}, BinaryAttributes{kind}), 6)};
}

// Inputs: x, scale, zero point; scale and zero point of y.
std::vector<ValueId> convert_unary(NodeContext& node, const UnaryAttributes& attributes) {
  const ValueId x = dequantized_input(node, 0, "x");
  return {quantized_output(node, node.emit<Unary>({x}, attributes), 3)};
}
std::vector<ValueId> convert_sigmoid(NodeContext& node) {
  return convert_unary(node, {UnaryKind::sigmoid});
}
std::vector<ValueId> convert_leaky_relu(NodeContext& node) {
  return convert_unary(node, {UnaryKind::leaky_relu, node.attributes().number("alpha", 0.01F)});
}

std::vector<ValueId> convert_softmax(NodeContext& node) {
  const std::int64_t meaning = node.attributes().integer("opset", kLastOpset);
  const SoftmaxAttributes attributes{.axis = node.attributes().integer("axis", meaning < 13 ? 1 : -1),
                                     .flatten_from_axis = meaning < 13};
  const ValueId x = dequantized_input(node, 0, "x");
  return {quantized_output(node, node.emit<Softmax>({x}, attributes), 3)};
}

std::vector<ValueId> convert_pool(NodeContext& node, const PoolAttributes& attributes) {
  if (node.attributes().flag("channels_last", false)) fail_unsupported("attribute 'channels_last' = 1");
  const ValueId x = dequantized_input(node, 0, "x");
  return {quantized_output(node, node.emit<Pool>({x}, attributes), 3)};
}
std::vector<ValueId> convert_global_average_pool(NodeContext& node) {
  return convert_pool(node, {.kind = PoolKind::average, .global = true});
}
std::vector<ValueId> convert_qaverage_pool(NodeContext& node) {
  PoolAttributes attributes{.kind = PoolKind::average, .window = read_window(node, {}, "QLinearAveragePool")};
  attributes.count_include_pad = node.attributes().flag("count_include_pad", false);
  return convert_pool(node, attributes);
}

// Inputs: scale and zero point of y; then x, scale, zero point of every operand.
std::vector<ValueId> convert_qconcat(NodeContext& node) {
  if ((node.input_count() - 2) % 3 != 0)
    fail("{} inputs; expected two and three for every operand", node.input_count());
  std::vector<ValueId> inputs;
  for (int i = 2; i < node.input_count(); i += 3) {
    inputs.push_back(dequantized_input(node, i, fmt::format("x{}", inputs.size()).c_str()));
  }
  const ConcatAttributes attributes{node.attributes().required_integer("axis")};
  return {quantized_output(node, node.emit<Concat>(std::move(inputs), attributes), 0)};
}

// Inputs: a, scale, zero point; b likewise, per column or per tensor; c (i32, in units of the products); scale and zero
// point of y, without which y is f32.
std::vector<ValueId> convert_qgemm(NodeContext& node) {
  GemmAttributes attributes;
  attributes.alpha = node.attributes().number("alpha", 1);
  attributes.transpose_a = node.attributes().flag("transA", false);
  attributes.transpose_b = node.attributes().flag("transB", false);
  std::vector<ValueId> inputs = {dequantized_input(node, 0, "a"),
                                 dequantized_input(node, 3, "b", attributes.transpose_b ? 0 : -1)};
  if (node.has_input(6)) {
    const AxisQuantization a = read_quantization(node, 1, 2, DType::u8, node.input_shape(0));
    const AxisQuantization b =
        read_quantization(node, 4, 5, DType::u8, node.input_shape(3), attributes.transpose_b ? 0 : -1);
    if (!a.per_tensor()) fail("{} scales of a; expected one", a.scales.size());
    AxisQuantization c = bias_quantization(b, attributes.alpha * a.scales[0]);
    c.axis = std::max(0, node.input_shape(6).rank() - 1);
    inputs.push_back(dequantized(node, node.input(6), c, "c"));
  }
  const ValueId y = node.emit<Gemm>(std::move(inputs), attributes);
  return {node.has_input(7) ? quantized_output(node, y, 7) : y};
}

UnaryAttributes read_activation(NodeContext& node) {
  const std::string name = node.attributes().text("activation", "");
  const std::vector<float> p = node.attributes().numbers("activation_params").value_or(std::vector<float>{});
  const auto with = [&](std::size_t count, UnaryAttributes attributes) {
    if (p.size() != count) fail("activation {} with {} parameters, expected {}", name, p.size(), count);
    return attributes;
  };
  if (name == "Relu") return with(0, {UnaryKind::relu});
  if (name == "Sigmoid") return with(0, {UnaryKind::sigmoid});
  if (name == "Tanh") return with(0, {UnaryKind::tanh});
  if (name == "LeakyRelu") return with(1, {UnaryKind::leaky_relu, p.empty() ? 0 : p[0]});
  if (name == "Clip") return with(2, {UnaryKind::clip, p.empty() ? 0 : p[0], p.size() < 2 ? 0 : p[1]});
  if (name == "HardSigmoid")
    return with(2, {UnaryKind::hard_sigmoid, p.empty() ? 0 : p[0], p.size() < 2 ? 0 : p[1]});
  fail_unsupported("activation '{}'", name);
}

// Inputs: x, w, bias, and what is added before the activation.
std::vector<ValueId> convert_fused_conv(NodeContext& node) {
  const Shape& weights = node.input_shape(1);
  if (weights.rank() < 3) fail("weights {}: expected [output, input / group, kernel...]", weights.str());
  ConvAttributes attributes;
  attributes.window = read_window(node, weights.dims().subspan(2), "FusedConv");
  attributes.groups = node.attributes().integer("group", 1);
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (node.has_input(2)) inputs.push_back(node.input(2));
  ValueId y = node.emit<Conv>(std::move(inputs), attributes);
  if (node.has_input(3))
    y = node.emit(std::make_shared<Binary>(BinaryAttributes{BinaryKind::add}), {y, node.input(3)}, "sum");
  if (!node.attributes().has("activation")) return {y};
  return {node.emit(std::make_shared<Unary>(read_activation(node)), {y}, "activation")};
}

constexpr Operator kMicrosoftOperators[] = {
    {"com.microsoft::FusedConv", 1, kLastOpset, 2, 4, convert_fused_conv},
    {"com.microsoft::QGemm", 1, kLastOpset, 6, 9, convert_qgemm},
    {"com.microsoft::QLinearAdd", 1, kLastOpset, 7, 8, convert_qbinary<BinaryKind::add>},
    {"com.microsoft::QLinearAveragePool", 1, kLastOpset, 4, 5, convert_qaverage_pool},
    {"com.microsoft::QLinearConcat", 1, kLastOpset, 3, kVariadic, convert_qconcat},
    {"com.microsoft::QLinearGlobalAveragePool", 1, kLastOpset, 5, 5, convert_global_average_pool},
    {"com.microsoft::QLinearLeakyRelu", 1, kLastOpset, 4, 5, convert_leaky_relu},
    {"com.microsoft::QLinearMul", 1, kLastOpset, 7, 8, convert_qbinary<BinaryKind::mul>},
    {"com.microsoft::QLinearSigmoid", 1, kLastOpset, 4, 5, convert_sigmoid},
    {"com.microsoft::QLinearSoftmax", 1, kLastOpset, 5, 5, convert_softmax},
};

}  // namespace

std::span<const Operator> microsoft_operators() {
  return kMicrosoftOperators;
}

}  // namespace pipit::internal::onnx
