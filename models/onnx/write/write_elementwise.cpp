// Element-wise layers, normalizations and reductions as ONNX nodes.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "layers/ops/binary.h"
#include "layers/ops/normalization.h"
#include "layers/ops/reduce.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

template <typename Kind>
using Operators = std::pair<Kind, const char*>;

// The operator of a kind; null for one that is not there.
template <typename Kind, std::size_t N>
const char* operator_of(const Operators<Kind> (&operators)[N], Kind kind) {
  const auto* at = std::ranges::find(operators, kind, &Operators<Kind>::first);
  return at == std::end(operators) ? nullptr : at->second;
}

// Functions that are one operator without attributes.
constexpr Operators<UnaryKind> kPlain[] = {
    {UnaryKind::relu, "Relu"},         {UnaryKind::sigmoid, "Sigmoid"},
    {UnaryKind::tanh, "Tanh"},         {UnaryKind::erf, "Erf"},
    {UnaryKind::exp, "Exp"},           {UnaryKind::log, "Log"},
    {UnaryKind::sqrt, "Sqrt"},         {UnaryKind::reciprocal, "Reciprocal"},
    {UnaryKind::softplus, "Softplus"}, {UnaryKind::softsign, "Softsign"},
    {UnaryKind::neg, "Neg"},           {UnaryKind::abs, "Abs"},
    {UnaryKind::sign, "Sign"},         {UnaryKind::floor, "Floor"},
    {UnaryKind::ceil, "Ceil"},         {UnaryKind::round, "Round"},
    {UnaryKind::sin, "Sin"},           {UnaryKind::cos, "Cos"},
    {UnaryKind::tan, "Tan"},           {UnaryKind::asin, "Asin"},
    {UnaryKind::acos, "Acos"},         {UnaryKind::atan, "Atan"},
    {UnaryKind::sinh, "Sinh"},         {UnaryKind::cosh, "Cosh"},
    {UnaryKind::asinh, "Asinh"},       {UnaryKind::acosh, "Acosh"},
    {UnaryKind::atanh, "Atanh"},       {UnaryKind::logical_not, "Not"}};

// Functions of one parameter.
constexpr Operators<UnaryKind> kWithAlpha[] = {{UnaryKind::leaky_relu, "LeakyRelu"},
                                               {UnaryKind::elu, "Elu"},
                                               {UnaryKind::celu, "Celu"},
                                               {UnaryKind::thresholded_relu, "ThresholdedRelu"}};

constexpr Operators<BinaryKind> kBinary[] = {{BinaryKind::add, "Add"},
                                             {BinaryKind::sub, "Sub"},
                                             {BinaryKind::mul, "Mul"},
                                             {BinaryKind::div, "Div"},
                                             {BinaryKind::min, "Min"},
                                             {BinaryKind::max, "Max"},
                                             {BinaryKind::pow, "Pow"},
                                             {BinaryKind::prelu, "PRelu"},
                                             {BinaryKind::mod, "Mod"},
                                             {BinaryKind::fmod, "Mod"},
                                             {BinaryKind::equal, "Equal"},
                                             {BinaryKind::less, "Less"},
                                             {BinaryKind::less_equal, "LessOrEqual"},
                                             {BinaryKind::greater, "Greater"},
                                             {BinaryKind::greater_equal, "GreaterOrEqual"},
                                             {BinaryKind::logical_and, "And"},
                                             {BinaryKind::logical_or, "Or"},
                                             {BinaryKind::logical_xor, "Xor"}};

// x * f(x): the activations that opset 13 has no operator for.
void write_gated(GraphWriter& writer, const Node& node, const std::string& x) {
  writer.add("Mul", node.name, {x, writer.last_result()});
}

// 0.5 x (1 + erf(x / sqrt(2)))
void write_gelu(GraphWriter& writer, const Node& node, const std::string& x) {
  const std::string root = writer.number(node.name + "/sqrt2", std::numbers::sqrt2, node.inputs[0]);
  const std::string one = writer.number(node.name + "/one", 1, node.inputs[0]);
  const std::string half = writer.number(node.name + "/half", 0.5, node.inputs[0]);
  writer.add("Div", node.name + "/div", {x, root});
  writer.add("Erf", node.name + "/erf", {writer.last_result()});
  writer.add("Add", node.name + "/add", {writer.last_result(), one});
  write_gated(writer, node, x);
  writer.add("Mul", node.name + "/halved", {writer.last_result(), half});
}

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
void write_gelu_tanh(GraphWriter& writer, const Node& node, const std::string& x) {
  const auto number = [&](const char* part, double value) {
    return writer.number(node.name + part, value, node.inputs[0]);
  };
  const auto then = [&](const char* op, const char* part, const std::string& other) {
    writer.add(op, node.name + part, {writer.last_result(), other});
  };
  writer.add("Pow", node.name + "/cube", {x, number("/three", 3)});
  then("Mul", "/term", number("/factor", 0.044715));
  then("Add", "/inner", x);
  then("Mul", "/scaled", number("/root", std::sqrt(2 / std::numbers::pi)));
  writer.add("Tanh", node.name + "/tanh", {writer.last_result()});
  then("Add", "/add", number("/one", 1));
  write_gated(writer, node, x);
  then("Mul", "/halved", number("/half", 0.5));
}

void write_clip(GraphWriter& writer, const Node& node, const std::string& x, const UnaryAttributes& a) {
  const auto bound = [&](const char* part, double value) {
    return std::isinf(value) ? "" : writer.number(node.name + part, value, node.inputs[0]);
  };
  const std::string low = bound("/low", a.alpha), high = bound("/high", a.beta);
  writer.add("Clip", node.name, {x, low, high});
}

}  // namespace

void add_unary(GraphWriter& writer, const Node& node, const UnaryAttributes& a) {
  const std::string x = writer.operand(node.inputs[0]);
  const auto alpha = static_cast<float>(a.alpha);
  if (const char* plain = operator_of(kPlain, a.kind)) {
    writer.add(plain, node.name, {x});
  } else if (const char* with_alpha = operator_of(kWithAlpha, a.kind)) {
    set(writer.add(with_alpha, node.name, {x}), "alpha", alpha);
  } else if (a.kind == UnaryKind::gelu_tanh) {
    write_gelu_tanh(writer, node, x);
  } else if (a.kind == UnaryKind::pow) {
    writer.add("Pow", node.name, {x, writer.number(node.name + "/exponent", a.alpha, node.inputs[0])});
  } else if (a.kind == UnaryKind::clip) {
    write_clip(writer, node, x, a);
  } else if (a.kind == UnaryKind::selu || a.kind == UnaryKind::hard_sigmoid) {
    const bool selu = a.kind == UnaryKind::selu;
    onnx_pb::NodeProto& proto = writer.add(selu ? "Selu" : "HardSigmoid", node.name, {x});
    set(proto, "alpha", alpha);
    set(proto, selu ? "gamma" : "beta", static_cast<float>(a.beta));
  } else if (a.kind == UnaryKind::shrink) {
    onnx_pb::NodeProto& proto = writer.add("Shrink", node.name, {x});
    set(proto, "lambd", alpha);
    set(proto, "bias", static_cast<float>(a.beta));
  } else if (a.kind == UnaryKind::silu || a.kind == UnaryKind::swish) {
    std::string argument = x;
    if (a.kind == UnaryKind::swish) {
      writer.add("Mul", node.name + "/scaled",
                 {x, writer.number(node.name + "/alpha", a.alpha, node.inputs[0])});
      argument = writer.last_result();
    }
    writer.add("Sigmoid", node.name + "/sigmoid", {argument});
    write_gated(writer, node, x);
  } else if (a.kind == UnaryKind::hard_swish) {
    onnx_pb::NodeProto& proto = writer.add("HardSigmoid", node.name + "/hard_sigmoid", {x});
    set(proto, "alpha", 1.0F / 6);
    set(proto, "beta", 0.5F);
    write_gated(writer, node, x);
  } else if (a.kind == UnaryKind::mish) {
    writer.add("Softplus", node.name + "/softplus", {x});
    writer.add("Tanh", node.name + "/tanh", {writer.last_result()});
    write_gated(writer, node, x);
  } else if (a.kind == UnaryKind::gelu) {
    write_gelu(writer, node, x);
  } else {
    fail_unsupported("function {}", unary_name(a.kind));
  }
}

namespace {

void write_binary(GraphWriter& writer, const Node& node, const BinaryAttributes& attributes) {
  const char* op = operator_of(kBinary, attributes.kind);
  if (op == nullptr) fail_unsupported("function {}", binary_name(attributes.kind));
  const std::string a = writer.operand(node.inputs[0]);
  const std::string b = writer.operand(node.inputs[1]);
  onnx_pb::NodeProto& proto = writer.add(op, node.name, {a, b});
  if (attributes.kind == BinaryKind::fmod) set(proto, "fmod", std::int64_t{1});
  writer.add_activation(node.name, attributes.activation);
}

void write_softmax(GraphWriter& writer, const Node& node, const SoftmaxAttributes& attributes) {
  const Shape& shape = writer.desc(node.inputs[0]).shape;
  const SoftmaxGroups groups = softmax_groups(attributes, shape);
  int wide = 0;
  for (int d = groups.begin + 1; d < groups.end; ++d) wide += shape[d] != 1 ? 1 : 0;
  std::string x = writer.operand(node.inputs[0]);
  const char* op = attributes.log ? "LogSoftmax" : "Softmax";
  if (wide == 0) {
    set(writer.add(op, node.name, {x}), "axis", std::int64_t{groups.begin});
    return;
  }
  // Several dimensions are one while it is computed. 0: as in the input, so that the model fits other batches.
  if (groups.end != shape.rank() || shape.elements() == 0)
    fail_unsupported("a softmax over several dimensions that are not the last ones");
  std::vector<std::int64_t> flat(static_cast<std::size_t>(groups.begin), 0);
  flat.push_back(-1);
  std::vector<std::int64_t> whole(shape.dims().begin(), shape.dims().end());
  if (groups.begin > 0) whole[0] = 0;
  writer.add("Reshape", node.name + "/flat", {x, writer.integers(node.name + "/one", flat)});
  set(writer.add(op, node.name, {writer.last_result()}), "axis", std::int64_t{groups.begin});
  writer.add("Reshape", node.name + "/whole",
             {writer.last_result(), writer.integers(node.name + "/shape", whole)});
}

// Reductions that are one operator.
constexpr Operators<ReduceKind> kReduce[] = {
    {ReduceKind::sum, "ReduceSum"},        {ReduceKind::mean, "ReduceMean"},
    {ReduceKind::max, "ReduceMax"},        {ReduceKind::min, "ReduceMin"},
    {ReduceKind::prod, "ReduceProd"},      {ReduceKind::l1, "ReduceL1"},
    {ReduceKind::l2, "ReduceL2"},          {ReduceKind::sum_square, "ReduceSumSquare"},
    {ReduceKind::log_sum, "ReduceLogSum"}, {ReduceKind::log_sum_exp, "ReduceLogSumExp"}};

// Opset 13 has the axes of a sum as an input, those of all others as an attribute; from 18 on all are inputs.
void add_reduce(GraphWriter& writer, const std::string& name, const std::string& x,
                const ReduceAttributes& attributes) {
  GraphWriter::Names inputs{x};
  const bool as_input =
      (attributes.kind == ReduceKind::sum || writer.opset() >= 18) && !attributes.axes.empty();
  if (as_input) inputs.push_back(writer.integers(name + "/axes", attributes.axes));
  onnx_pb::NodeProto& proto = writer.add(operator_of(kReduce, attributes.kind), name, inputs);
  if (!as_input && !attributes.axes.empty()) set(proto, "axes", attributes.axes);
  set(proto, "keepdims", std::int64_t{attributes.keep_dims});
}

void write_batch_norm(GraphWriter& writer, const Node& node, const BatchNormAttributes& attributes) {
  GraphWriter::Names inputs;
  for (const ValueId id : node.inputs) inputs.push_back(writer.operand(id));
  set(writer.add("BatchNormalization", node.name, inputs), "epsilon", attributes.epsilon);
}

// With mean and deviation, in a file of an opset that has the operator.
void write_whole_layer_norm(GraphWriter& writer, const Node& node, const LayerNormAttributes& attributes) {
  const auto has = [&](std::size_t i) { return i < node.inputs.size() && node.inputs[i] != kNoValue; };
  if (!has(1)) fail_unsupported("a layer normalization with its mean and deviation, without a scale");
  GraphWriter::Names inputs{writer.operand(node.inputs[0]), writer.operand(node.inputs[1])};
  if (has(2)) inputs.push_back(writer.operand(node.inputs[2]));
  onnx_pb::NodeProto& proto = writer.add("LayerNormalization", node.name, inputs, attributes.outputs);
  set(proto, "axis", attributes.axis);
  set(proto, "epsilon", attributes.epsilon);
  for (std::size_t o = 1; o < node.outputs.size(); ++o)
    writer.store(node.outputs[o], {}, static_cast<int>(o));
}

// Opset 13 has neither LayerNormalization nor RMSNormalization: the form that PyTorch writes there, which other
// runtimes recognize.
void write_layer_norm(GraphWriter& writer, const Node& node, const LayerNormAttributes& attributes) {
  const ValueId input = node.inputs[0];
  const std::string x = writer.operand(input);
  const int rank = writer.desc(input).shape.rank();
  ReduceAttributes mean{ReduceKind::mean, {}, true};
  for (std::int64_t d = attributes.axis < 0 ? attributes.axis + rank : attributes.axis; d < rank; ++d)
    mean.axes.push_back(d);
  std::string difference = x;
  if (!attributes.rms) {
    add_reduce(writer, node.name + "/mean", x, mean);
    writer.add("Sub", node.name + "/difference", {x, writer.last_result()});
    difference = writer.last_result();
  }
  writer.add("Pow", node.name + "/square", {difference, writer.number(node.name + "/two", 2, input)});
  add_reduce(writer, node.name + "/variance", writer.last_result(), mean);
  writer.add("Add", node.name + "/add",
             {writer.last_result(), writer.number(node.name + "/epsilon", attributes.epsilon, input)});
  writer.add("Sqrt", node.name + "/deviation", {writer.last_result()});
  writer.add("Div", node.name, {difference, writer.last_result()});
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    writer.add(i == 1 ? "Mul" : "Add", node.name + (i == 1 ? "/scaled" : "/shifted"),
               {writer.last_result(), writer.operand(node.inputs[i])});
  }
}

void write_instance_norm(GraphWriter& writer, const Node& node, const InstanceNormAttributes& attributes) {
  GraphWriter::Names inputs;
  for (const ValueId id : node.inputs) inputs.push_back(writer.operand(id));
  set(writer.add("InstanceNormalization", node.name, inputs), "epsilon", attributes.epsilon);
}

void write_lrn(GraphWriter& writer, const Node& node, const LrnAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  onnx_pb::NodeProto& proto = writer.add("LRN", node.name, {x});
  set(proto, "size", attributes.size);
  set(proto, "alpha", attributes.alpha);
  set(proto, "beta", attributes.beta);
  set(proto, "bias", attributes.bias);
}

}  // namespace

bool write_elementwise_layer(GraphWriter& writer, const Node& node) {
  if (const auto* unary = layer_if<Unary>(node)) {
    add_unary(writer, node, unary->attributes());
  } else if (const auto* binary = layer_if<Binary>(node)) {
    write_binary(writer, node, binary->attributes());
  } else if (const auto* softmax = layer_if<Softmax>(node)) {
    write_softmax(writer, node, softmax->attributes());
  } else if (const auto* reduce = layer_if<Reduce>(node)) {
    add_reduce(writer, node.name, writer.operand(node.inputs[0]), reduce->attributes());
  } else if (const auto* norm = layer_if<BatchNorm>(node)) {
    write_batch_norm(writer, node, norm->attributes());
  } else if (const auto* layer_norm = layer_if<LayerNorm>(node)) {
    const LayerNormAttributes& a = layer_norm->attributes();
    a.outputs == 1 ? write_layer_norm(writer, node, a) : write_whole_layer_norm(writer, node, a);
  } else if (const auto* instance_norm = layer_if<InstanceNorm>(node);
             instance_norm != nullptr && instance_norm->attributes().groups == 0) {
    write_instance_norm(writer, node, instance_norm->attributes());
  } else if (const auto* lrn = layer_if<Lrn>(node)) {
    write_lrn(writer, node, lrn->attributes());
  } else {
    return false;
  }
  writer.store(node.outputs[0]);
  return true;
}

}  // namespace pipit::internal::onnx
