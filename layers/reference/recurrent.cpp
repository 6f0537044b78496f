#include "layers/ops/recurrent.h"

#include <algorithm>
#include <vector>

#include "layers/ops/dynamic_int8.h"
#include "layers/reference/float_kernel.h"
#include "layers/reference/index.h"

namespace pipit::internal {

namespace {

// One sequence in one direction.
template <typename T>
class Sequence {
 public:
  Sequence(const Recurrent& layer, std::span<const ConstTensorView> inputs, std::int64_t direction,
           std::int64_t sample)
      : a_(layer.attributes()),
        g_(a_, inputs[Recurrent::kGates].desc.shape, inputs[Recurrent::kWeights].desc.shape),
        inputs_(inputs),
        direction_(direction),
        sample_(sample),
        hidden_(first_state(Recurrent::kFirstHidden)),
        cell_(first_state(Recurrent::kFirstCell)) {}

  void run(std::span<const TensorView> outputs) {
    for (std::int64_t t = 0; t < g_.positions; ++t) {
      for (std::int64_t j = 0; j < g_.hidden; ++j) at(outputs[0], {t, direction_, sample_, j}) = 0;
    }
    const std::int64_t length = sequence_length(inputs_, g_, sample_);
    for (std::int64_t s = 0; s < length; ++s) {
      const std::int64_t t = RecurrentGeometry::reversed(a_, direction_) ? length - 1 - s : s;
      step(t);
      for (std::int64_t j = 0; j < g_.hidden; ++j)
        at(outputs[0], {t, direction_, sample_, j}) = static_cast<T>(hidden_[position(j)]);
    }
    for (std::int64_t j = 0; j < g_.hidden; ++j) {
      at(outputs[1], {direction_, sample_, j}) = static_cast<T>(hidden_[position(j)]);
      if (outputs.size() > 2) at(outputs[2], {direction_, sample_, j}) = static_cast<T>(cell_[position(j)]);
    }
  }

 private:
  static std::size_t position(std::int64_t j) { return static_cast<std::size_t>(j); }
  static T& at(const TensorView& view, const Index& index) {
    return view.as<T>()[offset_of(index, view.desc.strides(), view.desc.shape.rank())];
  }
  double value(std::size_t input, const Index& index) const {
    const ConstTensorView& view = inputs_[input];
    return view.as<T>()[offset_of(index, view.desc.strides(), view.desc.shape.rank())];
  }
  bool given(std::size_t input) const { return input < inputs_.size() && inputs_[input].present(); }

  std::vector<double> first_state(std::size_t input) const {
    std::vector<double> state(position(g_.hidden));
    for (std::int64_t j = 0; given(input) && j < g_.hidden; ++j)
      state[position(j)] = value(input, {direction_, sample_, j});
    return state;
  }

  double activate(std::size_t which, double x) const {
    // Not the cell state, which ONNX Runtime leaves as it is.
    if (a_.clip > 0 && which < 2) x = std::clamp(x, -a_.clip, a_.clip);
    return unary_value(a_.activations[position(direction_) * recurrent_activations(a_.kind) + which], x);
  }

  // x W of a gate.
  double from_input(std::int64_t t, std::int64_t gate, std::int64_t j) const {
    return value(Recurrent::kGates, {t, sample_, (direction_ * g_.gates + gate) * g_.hidden + j});
  }
  double recurrent(const std::vector<double>& state, std::int64_t gate, std::int64_t j) const {
    if (given(Recurrent::kScales)) return recurrent_of_bytes(state, gate * g_.hidden + j);
    const ConstTensorView& weights = inputs_[Recurrent::kWeights];
    const Strides strides = weights.desc.strides();
    const T* row = weights.as<T>() + offset_of({direction_, gate * g_.hidden + j}, strides, 2);
    const std::int64_t step = strides[2];
    double sum = 0;
    for (std::size_t k = 0; k < state.size(); ++k)
      sum += static_cast<double>(row[static_cast<std::int64_t>(k) * step]) * state[k];
    return sum;
  }
  double recurrent_of_bytes(const std::vector<double>& state, std::int64_t row) const {
    const ConstTensorView& weights = inputs_[Recurrent::kWeights];
    const Strides strides = weights.desc.strides();
    const std::int64_t of_row = direction_ * g_.gates * g_.hidden + row;
    const int zero_point = byte_at(inputs_[Recurrent::kZeroPoints], of_row);
    double sum = 0;
    for (std::int64_t k = 0; k < g_.hidden; ++k)
      sum +=
          (byte_at(weights, offset_of({direction_, row, k}, strides, 3)) - zero_point) * state[position(k)];
    return sum * inputs_[Recurrent::kScales].as<float>()[of_row];
  }
  double peephole(std::int64_t which, std::int64_t j, double cell) const {
    if (!given(Recurrent::kPeepholes)) return 0;
    return value(Recurrent::kPeepholes, {direction_, which * g_.hidden + j}) * cell;
  }

  std::vector<double> rounded_state() const {
    std::vector<float> state(hidden_.begin(), hidden_.end());
    round_state(state.data(), state.data(), g_.hidden);
    return {state.begin(), state.end()};
  }

  void step(std::int64_t t) {
    std::vector<double> next(hidden_.size());
    if (a_.kind == RecurrentKind::gru) return step_gru(t);
    const std::vector<double> multiplied = a_.rounds_state ? rounded_state() : hidden_;
    for (std::int64_t j = 0; j < g_.hidden; ++j) {
      const auto sum = [&](std::int64_t gate) {
        return from_input(t, gate, j) + recurrent(multiplied, gate, j);
      };
      if (a_.kind == RecurrentKind::rnn) {
        next[position(j)] = activate(0, sum(0));
        continue;
      }
      double& cell = cell_[position(j)];
      const double input = activate(0, sum(0) + peephole(0, j, cell));
      const double forget = a_.input_forget ? 1 - input : activate(0, sum(2) + peephole(2, j, cell));
      cell = forget * cell + input * activate(1, sum(3));
      next[position(j)] = activate(0, sum(1) + peephole(1, j, cell)) * activate(2, cell);
    }
    hidden_ = next;
  }

  void step_gru(std::int64_t t) {
    std::vector<double> next(hidden_.size());
    std::vector<double> reset(hidden_.size());
    for (std::int64_t j = 0; j < g_.hidden; ++j)
      reset[position(j)] = activate(0, from_input(t, 1, j) + recurrent(hidden_, 1, j));
    std::vector<double> scaled(hidden_);
    for (std::size_t j = 0; j < scaled.size(); ++j) scaled[j] *= reset[j];
    for (std::int64_t j = 0; j < g_.hidden; ++j) {
      const double update = activate(0, from_input(t, 0, j) + recurrent(hidden_, 0, j));
      double product = 0;
      if (a_.linear_before_reset) {
        const double bias =
            given(Recurrent::kHiddenBias) ? value(Recurrent::kHiddenBias, {direction_, j}) : 0;
        product = reset[position(j)] * (recurrent(hidden_, 2, j) + bias);
      } else {
        product = recurrent(scaled, 2, j);
      }
      const double candidate = activate(1, from_input(t, 2, j) + product);
      next[position(j)] = (1 - update) * candidate + update * hidden_[position(j)];
    }
    hidden_ = next;
  }

  const RecurrentAttributes& a_;
  RecurrentGeometry g_;
  std::span<const ConstTensorView> inputs_;
  std::int64_t direction_;
  std::int64_t sample_;
  std::vector<double> hidden_, cell_;
};

struct RecurrentReference {
  template <typename T>
  static void run(const Recurrent& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, ThreadPool& /*pool*/) {
    const Shape& states = outputs[1].desc.shape;
    for (std::int64_t d = 0; d < states[0]; ++d) {
      for (std::int64_t b = 0; b < states[1]; ++b) Sequence<T>(layer, inputs, d, b).run(outputs);
    }
  }
};

}  // namespace

void register_reference_recurrent(Registry& registry) {
  add_float_reference<Recurrent, RecurrentReference>(registry);
}

}  // namespace pipit::internal
