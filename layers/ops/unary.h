// Element-wise functions of one tensor.
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

enum class UnaryKind : std::uint8_t {
  relu,
  leaky_relu,
  elu,
  selu,
  celu,
  thresholded_relu,
  clip,
  sigmoid,
  tanh,
  hard_sigmoid,
  hard_swish,
  silu,
  swish,
  mish,
  gelu,
  gelu_tanh,
  erf,
  exp,
  log,
  sqrt,
  reciprocal,
  softplus,
  softsign,
  neg,
  abs,
  sign,
  floor,
  ceil,
  round,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  asinh,
  acosh,
  atanh,
  shrink,
  pow,
  logical_not,
};

std::string_view unary_name(UnaryKind kind);

/// Activation functions, whose values do not grow much faster than their argument: 8 bits hold what they return as well
/// as what they are given. Not exp, log, reciprocal and the like.
bool is_activation(UnaryKind kind);

/// alpha and beta mean: leaky_relu alpha; elu, celu alpha; selu alpha, beta = gamma; thresholded_relu alpha;
/// clip alpha = low, beta = high; hard_sigmoid max(0, min(1, alpha x + beta)); swish x * sigmoid(alpha x), of which
/// silu has alpha 1; shrink x + beta below -alpha, x - beta above alpha, else 0; pow x^alpha as C's pow(); else unused.
struct UnaryAttributes {
  UnaryKind kind = UnaryKind::relu;
  double alpha = 0;
  double beta = 0;
};

/// x * sigmoid(alpha x).
UnaryAttributes swish(double alpha);

/// f(x) by the formulas of the ONNX operators, written so that no intermediate value overflows where the result is
/// finite. Throws Error for logical_not.
double unary_value(const UnaryAttributes& attributes, double x);

/// y = f(x), same shape and dtype. Integers only where the function is exact on them (relu, clip, neg, abs,
/// sign, floor, ceil, round); bool only for logical_not. type() is "Unary"; summary() names the function.
class Unary final : public LayerOf<Unary, UnaryAttributes> {
 public:
  static constexpr std::string_view kType = "Unary";
  explicit Unary(UnaryAttributes attributes);

  LayerTraits traits() const override { return {.channelwise = is_activation(attributes_.kind)}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  bool may_run_in_place(int /*index*/) const override { return true; }
  std::string summary() const override;
};

}  // namespace pipit::internal
