// What the INT8 candidates share on the host.
#pragma once

#include "layers/qconv.h"

namespace pipit::cuda {

constexpr bool is_symmetric_i8(const Quantisation& q) {
  return q.dtype == DType::i8 && q.zero_point == 0;
}

/// The bounds of an output's value: in steps of its scale, or real where it is not quantised.
inline StepBounds output_bounds(const Quantisation& y, const Clamp& activation) {
  if (y.quantised()) return step_bounds(y, activation.low, activation.high);
  return {activation.low, activation.high};
}

/// What the residual's integers are multiplied by.
inline float residual_factor(const QConvAttributes& a) {
  return a.residual.scale / (a.y.quantised() ? a.y.scale : 1.0F);
}

}  // namespace pipit::cuda
