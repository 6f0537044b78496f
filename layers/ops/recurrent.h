// Recurrent layers: RNN, GRU, LSTM.
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

enum class RecurrentKind : std::uint8_t { rnn, gru, lstm };
enum class RecurrentDirection : std::uint8_t { forward, reverse, bidirectional };

struct RecurrentAttributes {
  RecurrentKind kind = RecurrentKind::lstm;
  RecurrentDirection direction = RecurrentDirection::forward;
  /// One after the other for each direction: rnn f; gru f (gates), g; lstm f (gates), g, h, as ONNX names them.
  std::vector<UnaryAttributes> activations;
  double clip = 0;  ///< operands of the gates' activations are clamped to [-clip, clip]; 0: not
  bool linear_before_reset = false;  ///< gru: the reset gate scales the product instead of its operand
  bool input_forget = false;         ///< lstm: the forget gate is 1 - the input gate
  /// Before the product with R, each sample's hidden state is rounded to 256 steps of its range, as by ONNX
  /// DynamicQuantizeLinear and DequantizeLinear. Not with gru.
  bool rounds_state = false;
};

/// Gates of a cell: rnn 1; gru 3 (z, r, h); lstm 4 (i, o, f, c).
constexpr std::int64_t recurrent_gates(RecurrentKind kind) {
  return kind == RecurrentKind::rnn ? 1 : kind == RecurrentKind::gru ? 3 : 4;
}
/// Activations of a direction.
constexpr std::size_t recurrent_activations(RecurrentKind kind) {
  return kind == RecurrentKind::rnn ? 1 : kind == RecurrentKind::gru ? 2 : 3;
}

/// The recurrent part of ONNX RNN, GRU and LSTM; the product x W^T is an input. T positions, B samples, D directions,
/// G gates, H hidden units. Inputs: x W^T plus all biases except the hidden bias [T, B, D G H]; R [D, G H, H], of the
/// same type, or with rounds_state in i8 or u8 (less zero points, times scales); optional: the hidden bias [D, H], of
/// the recurrent product of gate h of gru with linear_before_reset; lengths of the sequences [B] (i32 or i64; outside
/// [0, T] throws at run time); the first hidden state [D, B, H]; for lstm also the first cell state [D, B, H] and
/// peepholes i, o, f [D, 3 H]; for R in 8 bits scales [D, G H] (f32) and zero points [D, G H] (of its type). Outputs:
/// all hidden states [T, D, B, H], 0 after the end of a sequence; the last hidden state [D, B, H]; for lstm the last
/// cell state [D, B, H].
class Recurrent final : public LayerOf<Recurrent, RecurrentAttributes> {
 public:
  static constexpr std::string_view kType = "Recurrent";
  enum Input : std::uint8_t {
    kGates,
    kWeights,
    kHiddenBias,
    kLengths,
    kFirstHidden,
    kFirstCell,
    kPeepholes,
    kScales,
    kZeroPoints
  };

  /// Throws Error when the number of activations does not fit the directions, or one is not for floating point.
  explicit Recurrent(RecurrentAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::row_major; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;

 private:
  void check_type_of_weights(std::span<const TensorDesc* const> inputs, const Shape& rows) const;
};

/// Extents, and the order of positions in each direction.
struct RecurrentGeometry {
  std::int64_t positions, samples, directions, gates, hidden;

  RecurrentGeometry(const RecurrentAttributes& attributes, const Shape& gates_of_x, const Shape& weights);
  /// Whether direction `d` begins at the end.
  static bool reversed(const RecurrentAttributes& attributes, std::int64_t d) {
    return d == 1 || attributes.direction == RecurrentDirection::reverse;
  }
};

/// Rounds `count` numbers as `rounds_state` says, in f32: x / scale to the nearest integer (ties to even), times the
/// scale. The scale is 1/255 of the range, which includes 0, and the ends of the range are 0 and 255 steps from an
/// integer. If the scale is not a normal number, the numbers stay unchanged.
void round_state(const float* state, float* rounded, std::int64_t count);

/// The length of the sequence of a sample; throws Error where it is outside [0, positions].
std::int64_t sequence_length(std::span<const ConstTensorView> inputs, const RecurrentGeometry& geometry,
                             std::int64_t sample);

}  // namespace pipit::internal
