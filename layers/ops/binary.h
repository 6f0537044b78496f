// Element-wise functions of two tensors with broadcasting.
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/clamp.h"

namespace pipit::internal {

enum class BinaryKind : std::uint8_t {
  add,
  sub,
  mul,
  div,
  min,
  max,
  pow,
  mod,
  fmod,
  prelu,
  equal,  // this and the other comparisons: output bool
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,  // this and the other two: bool only
  logical_or,
  logical_xor,
};

std::string_view binary_name(BinaryKind kind);
/// True for equal, less, less_equal, greater and greater_equal, whose output is bool.
bool is_comparison(BinaryKind kind);
/// True for add, sub, mul, min and max: finite for finite operands that do not overflow.
constexpr bool is_channelwise(BinaryKind kind) {
  return kind == BinaryKind::add || kind == BinaryKind::sub || kind == BinaryKind::mul ||
         kind == BinaryKind::min || kind == BinaryKind::max;
}

struct BinaryAttributes {
  BinaryKind kind = BinaryKind::add;
  Clamp activation;  ///< applied to floating-point results (the fuse pass puts a following Relu or Clip here)
};

/// y = activation(f(a, b)) with multidirectional broadcasting (prelu: slope b is broadcast to x = a). Both
/// inputs have one dtype, except pow, whose exponent may have another. Integer division truncates; dividing
/// by an integer zero throws; integer overflow wraps. mod has the divisor's sign (Python), fmod the dividend's
/// (C). min and max are NaN if either operand is.
class Binary final : public LayerOf<Binary, BinaryAttributes> {
 public:
  static constexpr std::string_view kType = "Binary";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.channelwise = is_channelwise(attributes_.kind)}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  bool may_run_in_place(int /*index*/) const override { return true; }
  std::string summary() const override;
};

/// ONNX Where: y = condition ? a : b, all three broadcast. Inputs: condition (bool), a, b of one dtype.
class Where final : public LayerOf<Where, NoAttributes> {
 public:
  static constexpr std::string_view kType = "Where";
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
};

}  // namespace pipit::internal
