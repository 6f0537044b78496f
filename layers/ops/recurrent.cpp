#include "layers/ops/recurrent.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "layers/ops/inference_checks.h"
#include "layers/ops/reshaping.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t direction_count(RecurrentDirection direction) {
  return direction == RecurrentDirection::bidirectional ? 2 : 1;
}

}  // namespace

Recurrent::Recurrent(RecurrentAttributes attributes) : LayerOf(std::move(attributes)) {
  const std::size_t needed = recurrent_activations(attributes_.kind) *
                             static_cast<std::size_t>(direction_count(attributes_.direction));
  if (attributes_.activations.size() != needed)
    fail("Recurrent: {} activations, expected {}", attributes_.activations.size(), needed);
  for (const UnaryAttributes& activation : attributes_.activations) {
    if (activation.kind == UnaryKind::logical_not) fail("Recurrent: activation not");
  }
  if (attributes_.rounds_state && attributes_.kind == RecurrentKind::gru)
    fail("Recurrent: rounds_state is not for gru");
  if (!(attributes_.clip >= 0)) fail("Recurrent: clip is {}", attributes_.clip);
}

RecurrentGeometry::RecurrentGeometry(const RecurrentAttributes& attributes, const Shape& gates_of_x,
                                     const Shape& weights)
    : positions(gates_of_x[0]),
      samples(gates_of_x[1]),
      directions(direction_count(attributes.direction)),
      gates(recurrent_gates(attributes.kind)),
      hidden(weights[2]) {}

std::vector<TensorDesc> Recurrent::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 7);
  const TensorDesc& x = *inputs[kGates];
  const TensorDesc& weights = *inputs[kWeights];
  check_float(x, kType, "x W");
  if (x.shape.rank() != 3 || weights.shape.rank() != 3)
    fail("Recurrent: x W is {} and R {}; expected 3 dimensions", x.shape.str(), weights.shape.str());
  const RecurrentGeometry g(attributes_, x.shape, weights.shape);
  const std::int64_t rows = checked_mul(g.gates, g.hidden, "Recurrent");
  check_operand(weights, Shape{g.directions, rows, g.hidden}, weights.dtype, kType, "R");
  check_type_of_weights(inputs, Shape{g.directions, rows});
  check_operand(x, Shape{g.positions, g.samples, checked_mul(g.directions, rows, "Recurrent")}, x.dtype,
                kType, "x W");
  const auto check = [&](std::size_t index, const Shape& shape, const char* name) {
    if (const TensorDesc* desc = optional_input(inputs, index))
      check_operand(*desc, shape, x.dtype, kType, name);
  };
  const Shape state{g.directions, g.samples, g.hidden};
  check(kHiddenBias, Shape{g.directions, g.hidden}, "the bias of gate h");
  check(kFirstHidden, state, "the first hidden state");
  check(kFirstCell, state, "the first cell state");
  check(kPeepholes, Shape{g.directions, 3 * g.hidden}, "the peepholes");
  if (const TensorDesc* lengths = optional_input(inputs, kLengths)) {
    if (!(lengths->shape == Shape{g.samples}) ||
        (lengths->dtype != DType::i32 && lengths->dtype != DType::i64))
      fail("Recurrent: lengths are {}; expected {} of i32 or i64", lengths->str(), g.samples);
  }
  const bool lstm = attributes_.kind == RecurrentKind::lstm;
  if (!lstm &&
      (optional_input(inputs, kFirstCell) != nullptr || optional_input(inputs, kPeepholes) != nullptr))
    fail("Recurrent: a cell state or peepholes without LSTM");
  if (optional_input(inputs, kHiddenBias) != nullptr && !attributes_.linear_before_reset)
    fail("Recurrent: the bias of gate h without linear_before_reset");
  std::vector<TensorDesc> outputs{{Shape{g.positions, g.directions, g.samples, g.hidden}, x.dtype},
                                  {state, x.dtype}};
  if (lstm) outputs.push_back({state, x.dtype});
  return outputs;
}

void Recurrent::check_type_of_weights(std::span<const TensorDesc* const> inputs, const Shape& rows) const {
  const TensorDesc& x = *inputs[kGates];
  const TensorDesc& weights = *inputs[kWeights];
  const TensorDesc* scales = optional_input(inputs, kScales);
  const TensorDesc* zero_points = optional_input(inputs, kZeroPoints);
  const bool bytes = weights.dtype == DType::i8 || weights.dtype == DType::u8;
  if (!bytes) {
    check_operand(weights, weights.shape, x.dtype, kType, "R");
    if (scales != nullptr || zero_points != nullptr)
      fail("Recurrent: R in {} has scales or zero points", dtype_name(weights.dtype));
    return;
  }
  if (!attributes_.rounds_state || x.dtype != DType::f32 || scales == nullptr || zero_points == nullptr)
    fail("Recurrent: R in {} needs scales, zero points, rounds_state, and x W in f32",
         dtype_name(weights.dtype));
  check_operand(*scales, rows, DType::f32, kType, "the scales of R");
  check_operand(*zero_points, rows, weights.dtype, kType, "the zero points of R");
}

Work Recurrent::work(std::span<const TensorDesc* const> inputs,
                     std::span<const TensorDesc> /*outputs*/) const {
  return {saturating_product(inputs[kGates]->elements(), inputs[kWeights]->shape[2])};
}

std::string Recurrent::summary() const {
  static constexpr const char* kKinds[] = {"RNN", "GRU", "LSTM"};
  static constexpr const char* kDirections[] = {"", " reverse", " bidirectional"};
  return fmt::format("{}{}{}", kKinds[static_cast<std::size_t>(attributes_.kind)],
                     kDirections[static_cast<std::size_t>(attributes_.direction)],
                     attributes_.rounds_state ? " of a rounded state" : "");
}

void round_state(const float* state, float* rounded, std::int64_t count) {
  // Adding and taking away 1.5 * 2^23 rounds numbers of a size below 2^22 to whole ones, even at a tie.
  constexpr float kWhole = 12582912;
  float low = 0, high = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    low = state[j] < low ? state[j] : low;
    high = state[j] > high ? state[j] : high;
  }
  const float scale = (high - low) / 255;
  if (!(scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max())) {
    std::copy_n(state, count, rounded);
    return;
  }
  const float zero = ((0 - low / scale) + kWhole) - kWhole;
  for (std::int64_t j = 0; j < count; ++j) {
    const float whole = ((state[j] / scale) + kWhole) - kWhole;
    const float above = whole < -zero ? -zero : whole;
    rounded[j] = (above > 255 - zero ? 255 - zero : above) * scale;
  }
}

std::int64_t sequence_length(std::span<const ConstTensorView> inputs, const RecurrentGeometry& geometry,
                             std::int64_t sample) {
  if (inputs.size() <= Recurrent::kLengths || !inputs[Recurrent::kLengths].present())
    return geometry.positions;
  const std::int64_t length = index_at(inputs[Recurrent::kLengths], sample);
  if (length < 0 || length > geometry.positions)
    fail("Recurrent: a sequence of length {}; there are {} positions", length, geometry.positions);
  return length;
}

}  // namespace pipit::internal
