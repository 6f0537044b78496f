// Operators of domain com.microsoft that ONNX Runtime's optimizer writes for several of ONNX: FusedGemm, FusedMatMul,
// Gelu and its relatives, normalizations after an addition.
#include <algorithm>
#include <numeric>

#include "layers/ops/gemm.h"
#include "layers/ops/normalization.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

UnaryAttributes read_gemm_activation(NodeContext& node) {
  AttributeReader& given = node.attributes();
  const std::string name = given.text("activation", "");
  const auto alpha = [&](float fallback) { return given.number("activation_alpha", fallback); };
  const auto beta = [&](float fallback) { return given.number("activation_beta", fallback); };
  if (name == "Relu") return {UnaryKind::relu};
  if (name == "Sigmoid") return {UnaryKind::sigmoid};
  if (name == "Tanh") return {UnaryKind::tanh};
  if (name == "Softplus") return {UnaryKind::softplus};
  if (name == "Softsign") return {UnaryKind::softsign};
  if (name == "LeakyRelu") return {UnaryKind::leaky_relu, alpha(0.01F)};
  if (name == "Elu") return {UnaryKind::elu, alpha(1)};
  if (name == "ThresholdedRelu") return {UnaryKind::thresholded_relu, alpha(1)};
  if (name == "HardSigmoid") return {UnaryKind::hard_sigmoid, alpha(0.2F), beta(0.5F)};
  if (name == "Selu")
    return {UnaryKind::selu, alpha(1.67326319217681884765625F),
            given.number("activation_gamma", 1.05070102214813232421875F)};
  fail_unsupported("activation '{}'", name);
}

std::vector<ValueId> convert_fused_gemm(NodeContext& node) {
  Steps steps(node);
  GemmAttributes attributes;
  attributes.alpha = node.attributes().number("alpha", 1);
  attributes.beta = node.attributes().number("beta", 1);
  attributes.transpose_a = node.attributes().flag("transA", false);
  attributes.transpose_b = node.attributes().flag("transB", false);
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (node.has_input(2) && attributes.beta != 0) inputs.push_back(node.input(2));
  if (node.attributes().text("activation", "").empty())
    return {node.emit<Gemm>(std::move(inputs), attributes)};
  return {node.emit<Unary>({steps.add<Gemm>(inputs, attributes)}, read_gemm_activation(node))};
}

// x with its last two dimensions exchanged; with `batch`, the first of the others comes right before the last one.
ValueId transposed_operand(Steps& steps, ValueId x, bool transpose, bool batch) {
  const int rank = steps.shape(x).rank();
  if (rank < 2) return x;
  std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (batch) std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (transpose) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return steps.transpose(x, order);
}

std::vector<ValueId> convert_fused_matmul(NodeContext& node) {
  Steps steps(node);
  AttributeReader& given = node.attributes();
  const float alpha = given.number("alpha", 1);
  ValueId a =
      transposed_operand(steps, node.input(0), given.flag("transA", false), given.flag("transBatchA", false));
  ValueId b =
      transposed_operand(steps, node.input(1), given.flag("transB", false), given.flag("transBatchB", false));
  if (alpha == 1) return {steps.matmul(a, b)};
  // Weights once, or the smaller operand in each run.
  const bool scale_b = node.is_constant_value(b) ||
                       (!node.is_constant_value(a) && steps.shape(b).elements() < steps.shape(a).elements());
  ValueId& scaled = scale_b ? b : a;
  scaled = steps.binary(BinaryKind::mul, scaled, steps.number(steps.dtype(scaled), alpha));
  return {steps.matmul(a, b)};
}

// Of x, or of x + bias.
template <UnaryKind kind>
std::vector<ValueId> convert_biased(NodeContext& node) {
  Steps steps(node);
  const ValueId x =
      node.has_input(1) ? steps.binary(BinaryKind::add, node.input(0), node.input(1)) : node.input(0);
  return {node.emit<Unary>({x}, UnaryAttributes{kind})};
}

// x + skip, and a bias.
ValueId skip_sum(Steps& steps, int bias) {
  NodeContext& node = steps.node();
  const ValueId sum = steps.binary(BinaryKind::add, node.input(0), node.input(1));
  return node.has_input(bias) ? steps.binary(BinaryKind::add, sum, node.input(bias)) : sum;
}

// Inputs: x, skip, scale, bias of the result, bias of the sum. Outputs: result, mean, 1 / deviation, sum.
std::vector<ValueId> convert_skip_layer_norm(NodeContext& node) {
  Steps steps(node);
  const ValueId sum = skip_sum(steps, 4);
  LayerNormAttributes attributes{.axis = -1, .epsilon = node.attributes().number("epsilon", 1e-12F)};
  attributes.outputs = node.wants_output(1) || node.wants_output(2) ? 3 : 1;
  std::vector<ValueId> inputs = {sum, node.input(2)};
  if (node.has_input(3)) inputs.push_back(node.input(3));
  std::vector<ValueId> outputs = node.emit_all(std::make_shared<LayerNorm>(attributes), std::move(inputs));
  outputs.resize(3, kNoValue);
  outputs.push_back(sum);
  return outputs;
}

// Inputs: x, skip, scale, bias of the sum. Outputs: result, two that are for training, sum.
std::vector<ValueId> convert_skip_rms_norm(NodeContext& node) {
  Steps steps(node);
  if (node.wants_output(1) || node.wants_output(2)) fail_unsupported("statistics as outputs");
  const ValueId sum = skip_sum(steps, 3);
  const ValueId y =
      root_mean_square_normalized(steps, sum, node.input(2), -1, node.attributes().number("epsilon", 1e-12F));
  return {y, kNoValue, kNoValue, sum};
}

constexpr Operator kFusedOperators[] = {
    {"com.microsoft::BiasGelu", 1, kLastOpset, 2, 2, convert_biased<UnaryKind::gelu>},
    {"com.microsoft::FastGelu", 1, kLastOpset, 1, 2, convert_biased<UnaryKind::gelu_tanh>},
    {"com.microsoft::FusedGemm", 1, kLastOpset, 2, 3, convert_fused_gemm},
    {"com.microsoft::FusedMatMul", 1, kLastOpset, 2, 2, convert_fused_matmul},
    {"com.microsoft::Gelu", 1, kLastOpset, 1, 1, convert_biased<UnaryKind::gelu>},
    {"com.microsoft::SkipLayerNormalization", 1, kLastOpset, 3, 5, convert_skip_layer_norm},
    {"com.microsoft::SkipSimplifiedLayerNormalization", 1, kLastOpset, 3, 4, convert_skip_rms_norm},
};

}  // namespace

std::span<const Operator> fused_operators() {
  return kFusedOperators;
}

}  // namespace pipit::internal::onnx
