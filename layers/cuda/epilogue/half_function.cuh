// The element-wise functions of fp16 convolutions, of values in registers.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/device/half_math.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

namespace half_function {

/// 1 / (1 + 2^x), off by at most 2^-21 of it, and what x is off: ex2.approx is within 2^-22, rcp.approx within 1 ulp,
/// and what .ftz makes zero matters to neither the sum nor a half. 2^x may be infinite, which gives 0.
__device__ __forceinline__ float logistic(float x) {
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1 + power));
  return result;
}

}  // namespace half_function

/// v[i] = f(v[i]), for results that are rounded to half, by up to 2^-11 of them. A logistic gate is off by less than
/// 2^-17 of itself wherever the half is not zero: then the gate is above 2^-41 (a half ends at 2^-25, x at 2^16), and
/// |slope x| < 41 is off by 2^-23 of itself. NaN stays NaN, and no finite v[i] becomes one. The branch is the same for
/// all threads and taken once for many values, so that their instructions overlap.
template <int Count>
__device__ __forceinline__ void apply(const HalfFunction& f, float (&v)[Count]) {
  switch (f.gate) {
    case HalfGate::logistic:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * half_function::logistic(f.slope * x);
      break;
    case HalfGate::linear:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * clamp_value(fmaf(f.slope, x, f.offset), 0, 1);
      break;
    default:
#pragma unroll
      for (float& x : v) x = x < 0 ? f.slope * x : x;
  }
}

/// v[i] = f(min(max(v[i], low), high)).
template <int Count>
__device__ __forceinline__ void apply_clamped(const HalfFunction& f, float low, float high,
                                              float (&v)[Count]) {
#pragma unroll
  for (float& x : v) x = clamp_value(x, low, high);
  apply(f, v);
}

}  // namespace pipit::internal::cuda
