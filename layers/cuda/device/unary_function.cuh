// The functions of Unary in floating point.
#pragma once

#include "layers/ops/unary.h"

namespace pipit::internal::cuda {

/// f(x) by a branch that a whole grid takes alike. The formulas are the reference's. W: float or double.
template <typename W>
struct UnaryFunction {
  UnaryKind kind;
  W alpha, beta;

  static __device__ W clip(W x, W low, W high) {
    x = x < low ? low : x;
    return x > high ? high : x;
  }
  static __device__ W softplus(W x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

  __device__ W operator()(const W (&arguments)[1]) const {
    const W x = arguments[0];
    switch (kind) {
      case UnaryKind::relu:
        return x < 0 ? 0 : x;
      case UnaryKind::leaky_relu:
        return x < 0 ? alpha * x : x;
      case UnaryKind::elu:
        return x < 0 ? alpha * expm1(x) : x;
      case UnaryKind::selu:
        return beta * (x < 0 ? alpha * expm1(x) : x);
      case UnaryKind::celu:
        return x < 0 ? alpha * expm1(x / alpha) : x;
      case UnaryKind::thresholded_relu:
        return x <= alpha ? 0 : x;
      case UnaryKind::clip:
        return clip(x, alpha, beta);
      case UnaryKind::sigmoid:
        return 1 / (1 + exp(-x));
      case UnaryKind::tanh:
        return tanh(x);
      case UnaryKind::hard_sigmoid:
        return clip(alpha * x + beta, 0, 1);
      case UnaryKind::hard_swish:
        return x * clip(x / 6 + static_cast<W>(0.5), 0, 1);
      case UnaryKind::silu:
        return x / (1 + exp(-x));
      case UnaryKind::swish:
        return x / (1 + exp(-alpha * x));
      case UnaryKind::mish:
        return x * tanh(softplus(x));
      case UnaryKind::gelu:
        return static_cast<W>(0.5) * x * erfc(-x * static_cast<W>(0.70710678118654752440));
      case UnaryKind::gelu_tanh:
        return static_cast<W>(0.5) * x *
               (1 +
                tanh(static_cast<W>(0.79788456080286535588) * (x + static_cast<W>(0.044715) * x * x * x)));
      case UnaryKind::erf:
        return erf(x);
      case UnaryKind::exp:
        return exp(x);
      case UnaryKind::log:
        return log(x);
      case UnaryKind::sqrt:
        return sqrt(x);
      case UnaryKind::reciprocal:
        return 1 / x;
      case UnaryKind::softplus:
        return softplus(x);
      case UnaryKind::softsign:
        return x / (1 + fabs(x));
      case UnaryKind::neg:
        return -x;
      case UnaryKind::abs:
        return fabs(x);
      case UnaryKind::sign:
        return x > 0 ? 1 : x < 0 ? -1 : x;
      case UnaryKind::floor:
        return floor(x);
      case UnaryKind::ceil:
        return ceil(x);
      case UnaryKind::round:
        return rint(x);
      case UnaryKind::sin:
        return sin(x);
      case UnaryKind::cos:
        return cos(x);
      case UnaryKind::tan:
        return tan(x);
      case UnaryKind::asin:
        return asin(x);
      case UnaryKind::acos:
        return acos(x);
      case UnaryKind::atan:
        return atan(x);
      case UnaryKind::sinh:
        return sinh(x);
      case UnaryKind::cosh:
        return cosh(x);
      case UnaryKind::asinh:
        return asinh(x);
      case UnaryKind::acosh:
        return acosh(x);
      case UnaryKind::atanh:
        return atanh(x);
      case UnaryKind::shrink:
        return x < -alpha ? x + beta : x > alpha ? x - beta : x != x ? x : 0;
      case UnaryKind::pow:
        return pow(x, alpha);
      case UnaryKind::logical_not:
        break;
    }
    return x;  // not reached: logical_not is run as an integer function
  }
};

}  // namespace pipit::internal::cuda
