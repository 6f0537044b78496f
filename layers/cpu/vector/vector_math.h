// Branch-free f32 functions that vectorize inside loops of simd<>. Error bounds hold without FMA and are
// checked over the whole range by the tests. An ulp is the distance of neighbouring floats at the exact result.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/platform/simd.h"

namespace pipit::internal::vector_math {

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

/// e^x within 1.5 ulp for x <= 0; 0 where that is below the normal floats; NaN for NaN.
PIPIT_INLINE inline float exp_of_negative(float x) {
  constexpr float kLowest = -87.3F;
  const ReducedExp e = reduce_exp(x);
  const float y = (1.0F + e.fraction) * power_of_two(e.n);
  return x < kLowest ? 0.0F : y;
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

/// The logarithm of a float as exponent * ln 2 + z + rest, where z = m - 1 is exact and m in [sqrt(1/2), sqrt(2)).
struct ReducedLog {
  float exponent;
  float z;
  float rest;  ///< ln(1 + z) - z
};

/// Requires x > 0, normal and finite. The rest is -z^2 / 2 + z^3 p(z), p from Chebyshev interpolation (Cephes).
PIPIT_INLINE inline ReducedLog reduce_log(float x) {
  constexpr std::uint32_t kRootHalf = 0x3f3504f3U;  // bits of sqrt(1/2)
  const std::uint32_t above = std::bit_cast<std::uint32_t>(x) - kRootHalf;
  const float exponent = static_cast<float>(static_cast<std::int32_t>(above) >> 23);
  const float z = std::bit_cast<float>((above & 0x007fffffU) + kRootHalf) - 1.0F;
  float p = 7.0376836292e-2F;
  p = p * z - 1.1514610310e-1F;
  p = p * z + 1.1676998740e-1F;
  p = p * z - 1.2420140846e-1F;
  p = p * z + 1.4249322787e-1F;
  p = p * z - 1.6668057665e-1F;
  p = p * z + 2.0000714765e-1F;
  p = p * z - 2.4999993993e-1F;
  p = p * z + 3.3333331174e-1F;
  const float square = z * z;
  return {exponent, z, p * z * square - 0.5F * square};
}

/// ln x within 1.5 ulp, denormals included; -infinity for zeros, NaN for what is negative and for NaN.
PIPIT_INLINE inline float log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool tiny = x < 0x1p-126F;
  const float scaled = tiny ? x * 0x1p24F : x;
  const ReducedLog l = reduce_log(scaled);
  const float n = tiny ? l.exponent - 24.0F : l.exponent;
  // ln 2 in two parts, the first of few enough bits that n times it is exact.
  float y = n * 0.693359375F + (l.z + (n * -2.12194440e-4F + l.rest));
  y = x == kInfinity ? x : y;
  y = x == 0.0F ? -kInfinity : y;
  return x >= 0.0F ? y : std::numeric_limits<float>::quiet_NaN();
}

/// ln(1 + x) for x in [0, 1] or NaN, within 2.5 ulp: what 1 + x loses is made good by its quotient.
PIPIT_INLINE inline float log1p_of_fraction(float x) {
  const float u = 1.0F + x;
  const float lost = (x - (u - 1.0F)) / u;
  const ReducedLog l = reduce_log(u);
  const float y = l.exponent * 0.693359375F + (l.z + (l.exponent * -2.12194440e-4F + (l.rest + lost)));
  return x != x ? x : y;
}

/// Where sin() and cos() reduce their argument: larger ones are the C library's.
inline constexpr float kLargestAngle = 0x1p19F;

/// sin(x + quarter_turns * pi / 2) within 1 ulp for |x| <= kLargestAngle: in double, x = n pi / 2 + r, pi / 2 in two
/// parts, the first of few enough bits that n times it is exact; Taylor polynomials.
PIPIT_INLINE inline float sine(float x, std::int64_t quarter_turns) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low mantissa bits
  const auto wide = static_cast<double>(x);
  const double shifted = wide * 0.63661977236758134308 + kRound;
  const double n = shifted - kRound;
  const double r = (wide - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
  const double z = r * r;
  double s = 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = s * z * r + r;
  double c = -1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const std::int64_t quarter = std::bit_cast<std::int64_t>(shifted) + quarter_turns;
  const double y = (quarter & 1) != 0 ? c : s;
  return static_cast<float>((quarter & 2) != 0 ? -y : y);
}

/// Half an exponent's parity: 0 for even integers (floats from 2^24 on, infinities and NaN among them), 0.5 for odd
/// ones, something else for other numbers.
PIPIT_INLINE inline float half_remainder(float b) {
  const float magnitude = std::abs(b);
  const float half = magnitude < 0x1p24F ? 0.5F * magnitude : 0.0F;
  return half - static_cast<float>(static_cast<std::int32_t>(half));
}

/// log2 x for normal x > 0, relative error below 2^-43: x = 2^n * m with m in [sqrt(1/2), sqrt(2)), and
/// ln m = 2 artanh(f), f = (m - 1) / (m + 1), by its series up to f^17.
PIPIT_INLINE inline double log2(double x) {
  constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCDU;  // bits of sqrt(1/2)
  const std::uint64_t above = std::bit_cast<std::uint64_t>(x) - kRootHalf;
  const std::uint64_t exponent = above & 0xFFF0000000000000U;
  const double m = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) - exponent);
  // The integer n from its bits: 2^52 + 2^51 + n is exact.
  const std::uint64_t steps = (above >> 52) ^ 0x800U;  // n + 2048, as 12 bits of two's complement
  const double n = std::bit_cast<double>(0x4330000000000000U | steps) - (0x1p52 + 2048);
  const double f = (m - 1) / (m + 1);
  const double z = f * f;
  double p = 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1;
  return n + p * f * 2.885390081777926815;  // 2 / ln 2
}

/// 2^x for |x| <= 300 or NaN, relative error below 2^-36.
PIPIT_INLINE inline double exp2(double x) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low mantissa bits
  const double shifted = x + kRound;
  const double r = (x - (shifted - kRound)) * 0.693147180559945309;
  double p = 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1;
  p = p * r + 1;
  return p * std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
}

/// b log2 |a| in double, of which f32 keeps what is exact; 0 and infinity count as 1.
PIPIT_INLINE inline double power_exponent(float a, float b) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float magnitude = std::abs(a);
  const bool normal = magnitude > 0.0F && magnitude < kInfinity;
  const double exponent = static_cast<double>(b) * log2(normal ? static_cast<double>(magnitude) : 1.0);
  const double above = exponent < -300 ? -300.0 : exponent;
  return above > 300 ? 300.0 : above;
}

/// condition ? a : b by bits: the compiler makes branches of chains of the other form.
PIPIT_INLINE inline float select(bool condition, float a, float b) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) |
                              (std::bit_cast<std::uint32_t>(b) & ~mask));
}

/// a^b where `y` is |a|^b but for zeros and infinities: the special cases of C's pow().
PIPIT_INLINE inline float power_result(float a, float b, float y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float magnitude = std::abs(a);
  y = select(magnitude == 0.0F, select(b < 0.0F, kInfinity, 0.0F), y);
  y = select(magnitude == kInfinity, select(b < 0.0F, 0.0F, kInfinity), y);
  const float parity = half_remainder(b);
  const bool odd = parity == 0.5F;
  const bool fraction = (parity != 0.0F) & !odd;
  const bool negative = (a < 0.0F) & (magnitude > 0.0F) & (magnitude < kInfinity);
  y = select(negative & fraction, std::numeric_limits<float>::quiet_NaN(), y);
  y = select(odd, std::copysign(y, a), y);
  y = select((a != a) | (b != b), a + b, y);
  // 1 to any power and any number to the power 0, NaN included; (-1)^infinity.
  return select((a == 1.0F) | (b == 0.0F) | ((a == -1.0F) & (std::abs(b) == kInfinity)), 1.0F, y);
}

/// a^b within 1 ulp, with the special cases of C's pow().
PIPIT_INLINE inline float pow(float a, float b) {
  return power_result(a, b, static_cast<float>(exp2(power_exponent(a, b))));
}

}  // namespace pipit::internal::vector_math
