#include "layers/cuda/conv/half_follower.h"

#include <cmath>
#include <initializer_list>
#include <numbers>

#include "layers/common/layer_kernel.h"
#include "layers/ops/unary.h"

namespace pipit::cuda {

namespace {

// Nothing where HalfFunction does not describe it, or its parameters are beyond what halves can be: with an infinite
// slope 0 would become NaN.
std::optional<HalfFunction> function_of(const UnaryAttributes& a) {
  constexpr double kMost = 65504;
  for (const double parameter : {a.alpha, a.beta}) {
    if (!(std::abs(parameter) <= kMost)) return std::nullopt;
  }
  const auto logistic = [](bool times_x, double alpha) {
    return HalfFunction{HalfGate::logistic, times_x, static_cast<float>(-alpha * std::numbers::log2e)};
  };
  switch (a.kind) {
    case UnaryKind::sigmoid:
      return logistic(false, 1);
    case UnaryKind::silu:
      return logistic(true, 1);
    case UnaryKind::swish:
      return logistic(true, a.alpha);
    case UnaryKind::hard_sigmoid:
      return HalfFunction{HalfGate::linear, false, static_cast<float>(a.alpha), static_cast<float>(a.beta)};
    case UnaryKind::hard_swish:
      return HalfFunction{HalfGate::linear, true, 1.0F / 6, 0.5F};
    case UnaryKind::leaky_relu:
      return HalfFunction{HalfGate::sign, true, static_cast<float>(a.alpha)};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool fuses_function(const NodeSpec& spec, const NodeSpec& next) {
  return spec.fusion.followers.empty() && next.layer.type() == Unary::kType &&
         spec.outputs[0].dtype == DType::f16 && next.outputs[0].dtype == DType::f16 &&
         half_function_of(next).has_value();
}

std::optional<HalfFunction> half_function_of(const NodeSpec& unary) {
  return function_of(layer_as<Unary>(unary.layer).attributes());
}

HalfFunction follower_function(const NodeSpec& spec) {
  // An average may follow as well (conv_average.h).
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != Unary::kType) return {};
  return half_function_of(*spec.fusion.followers[0]).value();
}

}  // namespace pipit::cuda
