// Branch-free f32 functions that vectorise inside PIPIT_SIMD_CLONES loops. Error bounds hold without FMA and are
// checked over the whole range by the tests. An ulp is the distance of neighbouring floats at the exact result.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "layers/cpu/simd.h"

namespace pipit::vector_math {

/// The fraction of e^x = 2^n * (1 + fraction), n an integer and |r| = |x - n ln 2| <= ln 2 / 2.
struct ReducedExp {
  float fraction;
  std::int32_t n;
};

PIPIT_INLINE inline float power_of_two(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

/// Argument reduction after Cody and Waite (1980): ln 2 in two parts, the first of few enough bits that n times
/// it is exact. The fraction is the Taylor polynomial of e^r - 1 of degree 7, truncated below 2^-27.
/// Requires |x| < 2^20 or NaN (which n hides and the fraction keeps).
PIPIT_INLINE inline ReducedExp reduce_exp(float x) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low mantissa bits
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return {p * r * r + r, std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound)};
}

/// e^x within 1.5 ulp; infinity above ln of the largest float, gradual underflow to 0, NaN for NaN.
PIPIT_INLINE inline float exp(float x) {
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  const ReducedExp e = reduce_exp(x);
  const std::int32_t half = e.n >> 1;  // n may leave the range of exponents, its halves do not
  return (1.0F + e.fraction) * power_of_two(half) * power_of_two(e.n - half);
}

/// e^x - 1 within 2 ulp for x <= 88 (larger x give the value at 88); NaN for NaN.
PIPIT_INLINE inline float expm1(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const ReducedExp e = reduce_exp(x);
  const float scale = power_of_two(e.n);
  return scale * e.fraction + (scale - 1.0F);
}

/// 1 / (1 + e^-x) within 3 ulp, or 2^-126 where that is larger.
PIPIT_INLINE inline float sigmoid(float x) {
  return 1.0F / (1.0F + vector_math::exp(-x));
}

/// tanh x = (e^2x - 1) / (e^2x + 1) within 3 ulp; the argument is bounded where the result rounds to 1.
PIPIT_INLINE inline float tanh(float x) {
  x = x < -10.0F ? -10.0F : x;
  x = x > 10.0F ? 10.0F : x;
  const float e = vector_math::expm1(2.0F * x);
  return e / (e + 2.0F);
}

/// erf x within 3 ulp. Two polynomials from Chebyshev interpolation: erf(x)/x in x^2 on [0, 1], and
/// ln(1 - erf x) in x on [1, 4]; beyond 4 the result is 1.
PIPIT_INLINE inline float erf(float x) {
  const float z = x * x;
  float inner = 7.87587123e-05F;
  inner = inner * z - 8.01686314e-04F;
  inner = inner * z + 5.18908724e-03F;
  inner = inner * z - 2.68542115e-02F;
  inner = inner * z + 1.12835944e-01F;
  inner = inner * z - 3.76126260e-01F;
  inner = inner * z + 1.12837911F;
  const float magnitude = x < 0.0F ? -x : x;
  const float a = magnitude > 4.0F ? 4.0F : magnitude;
  float tail = -1.32723617e-05F;
  tail = tail * a + 3.16937017e-04F;
  tail = tail * a - 3.43235140e-03F;
  tail = tail * a + 2.26047728e-02F;
  tail = tail * a - 1.03281118e-01F;
  tail = tail * a - 6.39141262e-01F;
  tail = tail * a - 1.12589359e+00F;
  tail = tail * a - 7.65897799e-04F;
  const float near = inner * x;
  const float far = std::copysign(1.0F - vector_math::exp(tail), x);
  return magnitude <= 1.0F ? near : far;
}

}  // namespace pipit::vector_math
