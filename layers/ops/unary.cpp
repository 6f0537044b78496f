#include "layers/ops/unary.h"

#include <fmt/format.h>

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

bool exact_on_integers(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::relu:
    case UnaryKind::clip:
    case UnaryKind::neg:
    case UnaryKind::abs:
    case UnaryKind::sign:
    case UnaryKind::floor:
    case UnaryKind::ceil:
    case UnaryKind::round:
      return true;
    default:
      return false;
  }
}

bool accepts(UnaryKind kind, DType type) {
  if (kind == UnaryKind::logical_not || type == DType::boolean) {
    return kind == UnaryKind::logical_not && type == DType::boolean;
  }
  return is_floating(type) || exact_on_integers(kind);
}

}  // namespace

std::string_view unary_name(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::relu:
      return "relu";
    case UnaryKind::leaky_relu:
      return "leaky_relu";
    case UnaryKind::elu:
      return "elu";
    case UnaryKind::selu:
      return "selu";
    case UnaryKind::celu:
      return "celu";
    case UnaryKind::thresholded_relu:
      return "thresholded_relu";
    case UnaryKind::clip:
      return "clip";
    case UnaryKind::sigmoid:
      return "sigmoid";
    case UnaryKind::tanh:
      return "tanh";
    case UnaryKind::hard_sigmoid:
      return "hard_sigmoid";
    case UnaryKind::hard_swish:
      return "hard_swish";
    case UnaryKind::silu:
      return "silu";
    case UnaryKind::swish:
      return "swish";
    case UnaryKind::mish:
      return "mish";
    case UnaryKind::gelu:
      return "gelu";
    case UnaryKind::gelu_tanh:
      return "gelu_tanh";
    case UnaryKind::erf:
      return "erf";
    case UnaryKind::exp:
      return "exp";
    case UnaryKind::log:
      return "log";
    case UnaryKind::sqrt:
      return "sqrt";
    case UnaryKind::reciprocal:
      return "reciprocal";
    case UnaryKind::softplus:
      return "softplus";
    case UnaryKind::softsign:
      return "softsign";
    case UnaryKind::neg:
      return "neg";
    case UnaryKind::abs:
      return "abs";
    case UnaryKind::sign:
      return "sign";
    case UnaryKind::floor:
      return "floor";
    case UnaryKind::ceil:
      return "ceil";
    case UnaryKind::round:
      return "round";
    case UnaryKind::sin:
      return "sin";
    case UnaryKind::cos:
      return "cos";
    case UnaryKind::tan:
      return "tan";
    case UnaryKind::asin:
      return "asin";
    case UnaryKind::acos:
      return "acos";
    case UnaryKind::atan:
      return "atan";
    case UnaryKind::sinh:
      return "sinh";
    case UnaryKind::cosh:
      return "cosh";
    case UnaryKind::asinh:
      return "asinh";
    case UnaryKind::acosh:
      return "acosh";
    case UnaryKind::atanh:
      return "atanh";
    case UnaryKind::shrink:
      return "shrink";
    case UnaryKind::pow:
      return "pow";
    case UnaryKind::logical_not:
      return "not";
  }
  return "?";
}

UnaryAttributes swish(double alpha) {
  return alpha == 1 ? UnaryAttributes{UnaryKind::silu} : UnaryAttributes{UnaryKind::swish, alpha};
}

Unary::Unary(UnaryAttributes attributes) : LayerOf(attributes) {
  if (attributes_.kind == UnaryKind::celu && attributes_.alpha == 0) {
    fail("Unary celu: alpha is 0, but the function divides by it");
  }
}

std::vector<TensorDesc> Unary::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (!accepts(attributes_.kind, x.dtype)) {
    fail("Unary {}: not defined on {}", unary_name(attributes_.kind), dtype_name(x.dtype));
  }
  return {{x.shape, x.dtype}};
}

bool Unary::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string Unary::summary() const {
  const std::string_view name = unary_name(attributes_.kind);
  switch (attributes_.kind) {
    case UnaryKind::leaky_relu:
    case UnaryKind::elu:
    case UnaryKind::celu:
    case UnaryKind::thresholded_relu:
    case UnaryKind::pow:
    case UnaryKind::swish:
      return fmt::format("{} {:.6g}", name, attributes_.alpha);
    case UnaryKind::clip:
      return fmt::format("{} [{:.6g}, {:.6g}]", name, attributes_.alpha, attributes_.beta);
    case UnaryKind::selu:
    case UnaryKind::hard_sigmoid:
    case UnaryKind::shrink:
      return fmt::format("{} {:.6g} {:.6g}", name, attributes_.alpha, attributes_.beta);
    default:
      return std::string(name);
  }
}

bool is_activation(UnaryKind kind) {
  switch (kind) {
    case UnaryKind::relu:
    case UnaryKind::leaky_relu:
    case UnaryKind::elu:
    case UnaryKind::selu:
    case UnaryKind::celu:
    case UnaryKind::clip:
    case UnaryKind::sigmoid:
    case UnaryKind::tanh:
    case UnaryKind::hard_sigmoid:
    case UnaryKind::hard_swish:
    case UnaryKind::silu:
    case UnaryKind::swish:
    case UnaryKind::mish:
    case UnaryKind::gelu:
    case UnaryKind::gelu_tanh:
    case UnaryKind::softplus:
    case UnaryKind::softsign:
      return true;
    default:
      return false;
  }
}

}  // namespace pipit::internal
