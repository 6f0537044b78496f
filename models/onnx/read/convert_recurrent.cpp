// RNN, GRU and LSTM: the product of all inputs with their weights at once, then what runs over the positions.
#include "layers/ops/recurrent.h"

#include "layers/ops/operands.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

// Activations take their parameters from the lists in order, as far as they have one and the list is long enough.
class ActivationReader {
 public:
  explicit ActivationReader(NodeContext& node)
      : alphas_(node.attributes().numbers("activation_alpha").value_or(std::vector<float>{})),
        betas_(node.attributes().numbers("activation_beta").value_or(std::vector<float>{})) {}

  UnaryAttributes read(std::string name) {
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    if (name == "sigmoid") return {UnaryKind::sigmoid};
    if (name == "tanh") return {UnaryKind::tanh};
    if (name == "relu") return {UnaryKind::relu};
    if (name == "softplus") return {UnaryKind::softplus};
    if (name == "softsign") return {UnaryKind::softsign};
    if (name == "elu") return {UnaryKind::elu, next(alphas_, alpha_, 1)};
    if (name == "leakyrelu") return {UnaryKind::leaky_relu, next(alphas_, alpha_, 0.01F)};
    if (name == "thresholdedrelu") return {UnaryKind::thresholded_relu, next(alphas_, alpha_, 1)};
    if (name == "hardsigmoid")
      return {UnaryKind::hard_sigmoid, next(alphas_, alpha_, 0.2F), next(betas_, beta_, 0.5F)};
    fail_unsupported("activation '{}'", name);
  }

 private:
  static float next(const std::vector<float>& values, std::size_t& at, float fallback) {
    return at < values.size() ? values[at++] : fallback;
  }
  std::vector<float> alphas_, betas_;
  std::size_t alpha_ = 0;
  std::size_t beta_ = 0;
};

RecurrentAttributes read_recurrent(NodeContext& node, RecurrentKind kind) {
  RecurrentAttributes attributes{.kind = kind};
  const std::string direction = node.attributes().text("direction", "forward");
  if (direction == "reverse") {
    attributes.direction = RecurrentDirection::reverse;
  } else if (direction == "bidirectional") {
    attributes.direction = RecurrentDirection::bidirectional;
  } else if (direction != "forward") {
    fail("attribute 'direction' is '{}', expected forward, reverse or bidirectional", direction);
  }
  std::vector<std::string> names =
      node.attributes().texts("activations").value_or(std::vector<std::string>{});
  if (names.empty()) {
    const std::vector<std::string> defaults = kind == RecurrentKind::rnn ? std::vector<std::string>{"Tanh"}
                                              : kind == RecurrentKind::gru
                                                  ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                                  : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
    const int directions = attributes.direction == RecurrentDirection::bidirectional ? 2 : 1;
    for (int d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  ActivationReader reader(node);
  for (const std::string& name : names) attributes.activations.push_back(reader.read(name));
  attributes.clip = node.attributes().number("clip", 0);
  if (kind == RecurrentKind::gru)
    attributes.linear_before_reset = node.attributes().flag("linear_before_reset", false);
  if (kind == RecurrentKind::lstm) attributes.input_forget = node.attributes().flag("input_forget", false);
  return attributes;
}

// The bias of x W [D G H], and where the reset gate scales the recurrent product of gate h that of it [D, H]; from all
// biases [D, 2 G H], of x first.
struct RecurrentBias {
  ValueId input = kNoValue;
  ValueId hidden = kNoValue;
};

RecurrentBias split_bias(Steps& steps, ValueId bias, const RecurrentAttributes& attributes,
                         std::int64_t directions, std::int64_t hidden) {
  const std::int64_t rows = recurrent_gates(attributes.kind) * hidden;
  if (!(steps.shape(bias) == Shape{directions, 2 * rows}))
    fail("bias is {}, expected {}", steps.shape(bias).str(), Shape{directions, 2 * rows}.str());
  RecurrentBias result;
  const ValueId of_x = steps.slice(bias, 1, 0, rows);
  ValueId of_h = steps.slice(bias, 1, rows, 2 * rows);
  if (attributes.linear_before_reset) {
    result.hidden = steps.slice(of_h, 1, rows - hidden, rows);
    of_h = steps.concat({steps.slice(of_h, 1, 0, rows - hidden),
                         steps.number(steps.dtype(bias), 0, Shape{directions, hidden})},
                        1);
  }
  result.input = steps.reshape(steps.binary(BinaryKind::add, of_x, of_h), Shape{directions * rows});
  return result;
}

// Whether the weights of x are those of the identity, as written files have them: x is what they would give.
bool takes_x_as_it_is(NodeContext& node, const Shape& weights) {
  const Value& value = node.value(node.input(1));
  if (!value.is_constant() || value.desc.dtype != DType::f32 || weights[0] * weights[1] != weights[2])
    return false;
  std::int64_t at = 0;
  for (const float weight : value.constant->values<float>()) {
    if (weight != (at % (weights[2] + 1) == 0 ? 1.0F : 0.0F)) return false;
    ++at;
  }
  return true;
}

// Inputs: x, W, R, bias, lengths, first hidden state, first cell state, peepholes.
template <RecurrentKind kind>
std::vector<ValueId> convert_recurrent(NodeContext& node) {
  Steps steps(node);
  const RecurrentAttributes attributes = read_recurrent(node, kind);
  const bool batch_first = node.attributes().flag("layout", false);
  ValueId x = node.input(0);
  if (steps.shape(x).rank() != 3) fail("x is {}, expected 3 dimensions", steps.shape(x).str());
  if (batch_first) x = steps.transpose(x, {1, 0, 2});
  const Shape weights = node.input_shape(1);
  const Shape recurrent = node.input_shape(2);
  if (weights.rank() != 3 || recurrent.rank() != 3)
    fail("W is {} and R {}; expected 3 dimensions", weights.str(), recurrent.str());
  const std::int64_t hidden = node.attributes().integer("hidden_size", recurrent[2]);
  if (hidden != recurrent[2]) fail("attribute 'hidden_size' is {}, but R is {}", hidden, recurrent.str());
  const std::int64_t directions = recurrent[0];
  const std::int64_t columns = checked_mul(weights[0], weights[1], "W");
  ValueId gates = x;
  if (!takes_x_as_it_is(node, weights)) {
    const ValueId matrix = steps.transpose(steps.reshape(node.input(1), Shape{columns, weights[2]}), {1, 0});
    gates = steps.matmul(x, matrix);
  }
  RecurrentBias bias;
  if (node.has_input(3)) bias = split_bias(steps, node.input(3), attributes, directions, hidden);
  if (bias.input != kNoValue) gates = steps.binary(BinaryKind::add, gates, bias.input);
  const auto state = [&](int input) {
    const ValueId given = node.optional_input(input);
    return given == kNoValue || !batch_first ? given : steps.transpose(given, {1, 0, 2});
  };
  std::vector<ValueId> outputs = node.emit_all(std::make_shared<Recurrent>(attributes),
                                               {gates, node.input(2), bias.hidden, node.optional_input(4),
                                                state(5), state(6), node.optional_input(7)});
  // y [T, D, B, H] as ONNX has it, or [B, T, D, H].
  if (!batch_first) return outputs;
  std::vector<ValueId> moved{steps.transpose(outputs[0], {2, 0, 1, 3})};
  for (std::size_t i = 1; i < outputs.size(); ++i) moved.push_back(steps.transpose(outputs[i], {1, 0, 2}));
  return moved;
}

constexpr Operator kRecurrentOperators[] = {
    {"GRU", 7, kLastOpset, 3, 6, convert_recurrent<RecurrentKind::gru>},
    {"LSTM", 7, kLastOpset, 3, 8, convert_recurrent<RecurrentKind::lstm>},
    {"RNN", 7, kLastOpset, 3, 6, convert_recurrent<RecurrentKind::rnn>},
};

}  // namespace

std::span<const Operator> recurrent_operators() {
  return kRecurrentOperators;
}

}  // namespace pipit::internal::onnx
