// RNN, GRU and LSTM, and DynamicQuantizeLSTM of ONNX Runtime's quantization: the product of all inputs with their
// weights at once, then what runs over the positions.
#include "layers/ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "layers/ops/dynamic_int8.h"

#include "layers/ops/operands.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"
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
bool takes_x_as_it_is(NodeContext& node, ValueId id, const Shape& weights) {
  const Value& value = node.value(id);
  if (!value.is_constant() || value.desc.dtype != DType::f32 || weights[0] * weights[1] != weights[2])
    return false;
  std::int64_t at = 0;
  for (const float weight : value.constant->values<float>()) {
    if (weight != (at % (weights[2] + 1) == 0 ? 1.0F : 0.0F)) return false;
    ++at;
  }
  return true;
}

// What the operators differ in: x as it is multiplied, W [D, G H, I], R [D, G H, H].
struct RecurrentOperands {
  ValueId x = kNoValue;
  ValueId weights = kNoValue;
  ValueId recurrent = kNoValue;
  ValueId gates = kNoValue;  // x W^T, where it is computed already; then x and W are not looked at
  ValueId scales = kNoValue, zero_points = kNoValue;  // of R in 8 bits
};

// The other inputs: bias 3, lengths 4, first hidden state 5, first cell state 6, peepholes 7.
std::vector<ValueId> add_recurrent(NodeContext& node, const RecurrentAttributes& attributes,
                                   RecurrentOperands operands, bool batch_first) {
  Steps steps(node);
  const auto shape_of = [&](ValueId id) -> const Shape& { return node.desc(id).shape; };
  if (batch_first) operands.x = steps.transpose(operands.x, {1, 0, 2});
  const bool has_gates = operands.gates != kNoValue;
  const Shape weights = has_gates ? Shape{} : shape_of(operands.weights);
  const Shape recurrent = shape_of(operands.recurrent);
  const std::int64_t hidden = node.attributes().integer("hidden_size", recurrent[2]);
  if (hidden != recurrent[2]) fail("attribute 'hidden_size' is {}, but R is {}", hidden, recurrent.str());
  const std::int64_t directions = recurrent[0];
  ValueId gates = has_gates ? operands.gates : operands.x;
  if (!has_gates && !takes_x_as_it_is(node, operands.weights, weights)) {
    const std::int64_t columns = checked_mul(weights[0], weights[1], "W");
    const ValueId matrix =
        steps.transpose(steps.reshape(operands.weights, Shape{columns, weights[2]}), {1, 0});
    gates = steps.matmul(operands.x, matrix);
  }
  RecurrentBias bias;
  if (node.has_input(3)) bias = split_bias(steps, node.input(3), attributes, directions, hidden);
  if (bias.input != kNoValue) gates = steps.binary(BinaryKind::add, gates, bias.input);
  const auto state = [&](int input) {
    const ValueId given = node.optional_input(input);
    return given == kNoValue || !batch_first ? given : steps.transpose(given, {1, 0, 2});
  };
  std::vector<ValueId> outputs =
      node.emit_all(std::make_shared<Recurrent>(attributes),
                    {gates, operands.recurrent, bias.hidden, node.optional_input(4), state(5), state(6),
                     node.optional_input(7), operands.scales, operands.zero_points});
  // y [T, D, B, H] as ONNX has it, or [B, T, D, H].
  if (!batch_first) return outputs;
  std::vector<ValueId> moved{steps.transpose(outputs[0], {2, 0, 1, 3})};
  for (std::size_t i = 1; i < outputs.size(); ++i) moved.push_back(steps.transpose(outputs[i], {1, 0, 2}));
  return moved;
}

void need_three_dimensions(const Shape& x, const Shape& weights, const Shape& recurrent) {
  if (x.rank() != 3) fail("x is {}, expected 3 dimensions", x.str());
  if (weights.rank() != 3 || recurrent.rank() != 3)
    fail("W is {} and R {}; expected 3 dimensions", weights.str(), recurrent.str());
}

// Inputs: x, W, R.
template <RecurrentKind kind>
std::vector<ValueId> convert_recurrent(NodeContext& node) {
  const RecurrentAttributes attributes = read_recurrent(node, kind);
  need_three_dimensions(node.input_shape(0), node.input_shape(1), node.input_shape(2));
  return add_recurrent(node, attributes, {node.input(0), node.input(1), node.input(2)},
                       node.attributes().flag("layout", false));
}

// Of DynamicQuantizeLSTM: integers [D, K, 4 H], the input `scale` [D] or [D, 4 H], and the zero point after it of the
// same shape, as real weights [D, 4 H, K].
ValueId real_weights(Steps& steps, int integers, int scale) {
  NodeContext& node = steps.node();
  const Shape& shape = node.input_shape(integers);
  const auto spread = [&](int input, const char* name) {
    const Shape& given = node.input_shape(input);
    const bool per_direction = given == Shape{shape[0]};
    if (!per_direction && !(given == Shape{shape[0], shape[2]}))
      fail("{} {}, expected {} or {}", name, given.str(), Shape{shape[0]}.str(),
           Shape{shape[0], shape[2]}.str());
    return steps.reshape(node.input(input), Shape{shape[0], 1, per_direction ? 1 : shape[2]});
  };
  const ValueId zero = steps.cast(spread(scale + 1, "zero points"), DType::f32);
  const ValueId whole = steps.binary(BinaryKind::sub, steps.cast(node.input(integers), DType::f32), zero);
  return steps.transpose(steps.binary(BinaryKind::mul, whole, spread(scale, "scales")), {0, 2, 1});
}

// Such weights as they are stored, [D, 4 H, K], with a scale and a zero point for every row.
struct ByteRows {
  Tensor weights;
  std::vector<float> scales;
  std::vector<int> zero_points;
};

// None where one of them is computed at run time, or the layers in integers do not take it.
std::optional<ByteRows> byte_rows(NodeContext& node, int integers, int scale, std::int64_t depth) {
  for (const int input : {integers, scale, scale + 1})
    if (!node.is_constant(input)) return std::nullopt;
  const Tensor& from = *node.known(integers);
  const Tensor& scales = *node.known(scale);
  const Tensor& zeros = *node.known(scale + 1);
  const Shape& shape = from.shape();
  const DType type = from.desc().dtype;
  const std::int64_t rows = shape[0] * shape[2];
  if ((type != DType::i8 && type != DType::u8) || zeros.desc().dtype != type || shape.elements() == 0 ||
      shape[1] != depth || depth >= kMaxAffineDepth || scales.desc().dtype != DType::f32 ||
      !(scales.shape() == zeros.shape()) ||
      !(scales.shape() == Shape{shape[0]} || scales.shape() == Shape{shape[0], shape[2]}))
    return std::nullopt;
  ByteRows result{node.allocate({Shape{shape[0], shape[2], shape[1]}, type}), {}, {}};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row * scales.shape().elements() / rows);
    result.scales.push_back(scales.values<float>()[at]);
    result.zero_points.push_back(byte_at(zeros.view(), static_cast<std::int64_t>(at)));
    const std::byte* column = from.view().data + row / shape[2] * shape[1] * shape[2] + row % shape[2];
    for (std::int64_t k = 0; k < depth; ++k)
      result.weights.view().data[row * depth + k] = column[k * shape[2]];
  }
  const bool positive = std::all_of(result.scales.begin(), result.scales.end(),
                                    [](float s) { return s > 0 && std::isfinite(s); });
  return positive ? std::optional(std::move(result)) : std::nullopt;
}

// x W^T in integers, x as dynamically_quantized() has it, and R in integers.
RecurrentOperands byte_operands(Steps& steps, const std::vector<ValueId>& x, ByteRows& w, ByteRows& r) {
  const Shape shape = steps.shape(x[0]);
  const std::int64_t rows = std::ssize(w.scales);
  RecurrentOperands operands;
  const DType type = r.weights.desc().dtype;
  const Shape per_row{r.weights.shape()[0], r.weights.shape()[1]};
  Tensor zero_points(TensorDesc{per_row, type});
  for (std::size_t i = 0; i < r.zero_points.size(); ++i)
    zero_points.view().data[i] = static_cast<std::byte>(r.zero_points[i]);
  operands.scales = steps.constant(Tensor::from<float>(per_row, std::span<const float>(r.scales)));
  operands.zero_points = steps.constant(std::move(zero_points));
  operands.recurrent = steps.constant(std::move(r.weights));
  Tensor filters = steps.node().allocate({Shape{rows, shape[2], 1, 1}, w.weights.desc().dtype});
  std::memcpy(filters.view().data, w.weights.view().data, filters.desc().bytes());
  const ValueId columns =
      steps.add<DynamicQConv>({steps.reshape(x[0], Shape{shape[0] * shape[1], shape[2], 1, 1}),
                               steps.constant(std::move(filters)), kNoValue, kNoValue, x[1], x[2]},
                              DynamicQConvAttributes{{}, std::move(w.scales), std::move(w.zero_points)});
  operands.gates = steps.reshape(columns, Shape{shape[0], shape[1], rows});
  return operands;
}

// Inputs: x, W [D, I, 4 H] and R [D, H, 4 H] in 8 bits; scale and zero point of W in 8 and 9, those of R in 10 and 11.
std::vector<ValueId> convert_dynamic_quantize_lstm(NodeContext& node) {
  Steps steps(node);
  RecurrentAttributes attributes = read_recurrent(node, RecurrentKind::lstm);
  attributes.rounds_state = true;
  need_three_dimensions(node.input_shape(0), node.input_shape(1), node.input_shape(2));
  const std::vector<ValueId> x = dynamically_quantized(node, node.input(0), "x_integers");
  auto w = byte_rows(node, 1, 8, node.input_shape(0)[2]);
  auto r = byte_rows(node, 2, 10, node.input_shape(2)[1]);
  if (w && r && node.input_shape(0).elements() > 0)
    return add_recurrent(node, attributes, byte_operands(steps, x, *w, *r), false);
  const auto real = [&](ValueId integers) { return steps.cast(integers, DType::f32); };
  const ValueId whole = steps.binary(BinaryKind::sub, real(x[0]), real(x[2]));
  return add_recurrent(
      node, attributes,
      {steps.binary(BinaryKind::mul, whole, x[1]), real_weights(steps, 1, 8), real_weights(steps, 2, 10)},
      false);
}

constexpr Operator kRecurrentOperators[] = {
    {"GRU", 7, kLastOpset, 3, 6, convert_recurrent<RecurrentKind::gru>},
    {"LSTM", 7, kLastOpset, 3, 8, convert_recurrent<RecurrentKind::lstm>},
    {"RNN", 7, kLastOpset, 3, 6, convert_recurrent<RecurrentKind::rnn>},
    {"com.microsoft::DynamicQuantizeLSTM", 1, kLastOpset, 12, 12, convert_dynamic_quantize_lstm},
};

}  // namespace

std::span<const Operator> recurrent_operators() {
  return kRecurrentOperators;
}

}  // namespace pipit::internal::onnx
