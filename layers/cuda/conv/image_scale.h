// How a float image becomes i8 while a convolution reads it: the quotients of layers/ops/quantization.h without
// divisions. Plain C++ apart from the function qualifiers, so that it is tested without a GPU.
#pragma once

#include <cmath>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::cuda {

struct ImageScale {
  float scale = 1;
  float reciprocal = 1;   ///< 1 / scale, rounded to nearest
  float bound = 127.25F;  ///< of x: what is larger is 127 all the same

  ImageScale() = default;
  explicit ImageScale(float s) : scale(s), reciprocal(1 / s), bound(127.25F * s) {}

  /// Whether nothing that matters overflows, or is too small for a normal number, on the way to a quotient.
  static bool takes(float s) { return s >= 0x1p-60F && s <= 0x1p60F; }

  /// x / scale rounded to nearest as long as it is at least 2^-20; what is smaller stays smaller. |x| <= bound.
  /// The first step makes a quotient that is off by less than its last bit, the second makes of such a one the nearest
  /// float (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
  PIPIT_HOST_DEVICE float quotient(float x) const {
#ifdef __CUDA_ARCH__
    float q = __fmul_rn(x, reciprocal);
    q = __fmaf_rn(__fmaf_rn(-scale, q, x), reciprocal, q);
    return __fmaf_rn(__fmaf_rn(-scale, q, x), reciprocal, q);
#else
    float q = x * reciprocal;
    q = std::fma(std::fma(-scale, q, x), reciprocal, q);
    return std::fma(std::fma(-scale, q, x), reciprocal, q);
#endif
  }
};

}  // namespace pipit::cuda
