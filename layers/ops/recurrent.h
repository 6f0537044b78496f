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
  double clip = 0;                   ///< what gates are computed of lies in [-clip, clip]; 0: anywhere
  bool linear_before_reset = false;  ///< gru: the reset gate scales the product instead of its operand
  bool input_forget = false;         ///< lstm: the forget gate is 1 - the input gate
  /// R is multiplied by the hidden state of each sample as ONNX DynamicQuantizeLinear and DequantizeLinear leave it:
  /// rounded to 256 steps of its range. Not with gru.
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

/// What runs over the positions of ONNX RNN, GRU and LSTM; what they compute of x alone comes in. With T positions, B
/// samples, D directions, G gates and H hidden units, inputs: x W^T and all biases but that below [T, B, D G H]; R
/// [D, G H, H], of the same type, or with rounds_state in i8 or u8, less zero points and times scales; optional: the
/// bias of the recurrent product of gate h [D, H], of gru with linear_before_reset; lengths of the sequences [B] (i32
/// or i64; outside [0, T] throws at run time); the first hidden state [D, B, H]; of lstm the first cell state [D, B, H]
/// and peepholes i, o, f [D, 3 H]; of R in 8 bits scales [D, G H] (f32) and zero points [D, G H] (of its type).
/// Outputs: the hidden states [T, D, B, H], 0 after the end of a sequence; the last one [D, B, H]; of lstm the last
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

/// Extents, and where a step of one direction is.
struct RecurrentGeometry {
  std::int64_t positions, samples, directions, gates, hidden;

  RecurrentGeometry(const RecurrentAttributes& attributes, const Shape& gates_of_x, const Shape& weights);
  /// Whether direction `d` begins at the end.
  static bool reversed(const RecurrentAttributes& attributes, std::int64_t d) {
    return d == 1 || attributes.direction == RecurrentDirection::reverse;
  }
};

/// What `rounds_state` makes of `count` numbers, in f32: x / scale to the nearest whole number, even at a tie, times
/// the scale. The scale is the 255th part of the range with 0, and the ends of the range are 0 and 255 steps from a
/// whole number. As they are where the scale is no normal number.
void round_state(const float* state, float* rounded, std::int64_t count);

/// The length of the sequence of a sample; throws Error where it is outside [0, positions].
std::int64_t sequence_length(std::span<const ConstTensorView> inputs, const RecurrentGeometry& geometry,
                             std::int64_t sample);

}  // namespace pipit::internal
