#include <cmath>
#include <numbers>

#include "engine/base/error.h"
#include "layers/ops/unary.h"

namespace pipit::internal {

namespace {

// min(max(x, low), high), NaN for NaN.
double clip(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

}  // namespace

double unary_value(const UnaryAttributes& a, double x) {
  switch (a.kind) {
    case UnaryKind::relu:
      return x < 0 ? 0 : x;
    case UnaryKind::leaky_relu:
      return x < 0 ? a.alpha * x : x;
    case UnaryKind::elu:
      return x < 0 ? a.alpha * std::expm1(x) : x;
    case UnaryKind::selu:
      return a.beta * (x < 0 ? a.alpha * std::expm1(x) : x);
    case UnaryKind::celu:
      return x < 0 ? a.alpha * std::expm1(x / a.alpha) : x;
    case UnaryKind::thresholded_relu:
      return x <= a.alpha ? 0 : x;
    case UnaryKind::clip:
      return clip(x, a.alpha, a.beta);
    case UnaryKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case UnaryKind::tanh:
      return std::tanh(x);
    case UnaryKind::hard_sigmoid:
      return clip(a.alpha * x + a.beta, 0, 1);
    case UnaryKind::hard_swish:
      return x * clip(x / 6 + 0.5, 0, 1);
    case UnaryKind::silu:
      return x / (1 + std::exp(-x));
    case UnaryKind::swish:
      return x / (1 + std::exp(-a.alpha * x));
    case UnaryKind::mish:
      return x * std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
    case UnaryKind::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case UnaryKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case UnaryKind::erf:
      return std::erf(x);
    case UnaryKind::exp:
      return std::exp(x);
    case UnaryKind::log:
      return std::log(x);
    case UnaryKind::sqrt:
      return std::sqrt(x);
    case UnaryKind::reciprocal:
      return 1 / x;
    case UnaryKind::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case UnaryKind::softsign:
      return x / (1 + std::abs(x));
    case UnaryKind::neg:
      return -x;
    case UnaryKind::abs:
      return std::abs(x);
    case UnaryKind::sign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case UnaryKind::floor:
      return std::floor(x);
    case UnaryKind::ceil:
      return std::ceil(x);
    case UnaryKind::round:
      return std::nearbyint(x);  // half to even in the default rounding mode
    case UnaryKind::sin:
      return std::sin(x);
    case UnaryKind::cos:
      return std::cos(x);
    case UnaryKind::tan:
      return std::tan(x);
    case UnaryKind::asin:
      return std::asin(x);
    case UnaryKind::acos:
      return std::acos(x);
    case UnaryKind::atan:
      return std::atan(x);
    case UnaryKind::sinh:
      return std::sinh(x);
    case UnaryKind::cosh:
      return std::cosh(x);
    case UnaryKind::asinh:
      return std::asinh(x);
    case UnaryKind::acosh:
      return std::acosh(x);
    case UnaryKind::atanh:
      return std::atanh(x);
    case UnaryKind::shrink:
      return x < -a.alpha ? x + a.beta : x > a.alpha ? x - a.beta : std::isnan(x) ? x : 0;
    case UnaryKind::pow:
      return std::pow(x, a.alpha);
    case UnaryKind::logical_not:
      break;
  }
  fail("Unary {}: not defined on floating point", unary_name(a.kind));
}

}  // namespace pipit::internal
