#include "layers/cpu/vector/byte_loops.h"

#include <algorithm>

#include "engine/platform/simd.h"
#include "layers/cpu/vector/requantize.h"
#include "layers/cpu/vector/transpose.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

namespace pipit::internal {

namespace {

// Value `i` of a span, less the zero point.
PIPIT_INLINE inline float steps(const std::uint8_t* x, unsigned flip, int offset, std::int64_t i) {
  return static_cast<float>(static_cast<int>(x[i] ^ flip) - offset);
}

const std::uint8_t* bytes(const std::byte* x) {
  return reinterpret_cast<const std::uint8_t*>(x);
}
std::uint8_t* bytes(std::byte* x) {
  return reinterpret_cast<std::uint8_t*>(x);
}

PIPIT_INLINE inline void quantize_loop(const float* x, float scale, StepBounds bounds, int zero_point,
                                       std::uint8_t* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<std::uint8_t>(requantize_step(x[i] / scale, bounds, zero_point));
  }
}

#if PIPIT_ISA_X86
// quantize_loop with the same bits and no division. With the reciprocal of the scale in two parts the product is within
// an ulp of the quotient, and one step of Newton's rounds it correctly then (Markstein, Computation of elementary
// functions on the IBM RISC System/6000 processor, 1990). It is bounded before, lest what is not finite becomes NaN:
// the remainder of a bound leads to the other side of it.
__attribute__((target("avx512f"))) void quantize_avx512(const float* x, float scale, StepBounds bounds,
                                                        int zero_point, std::uint8_t* y, std::int64_t count) {
  constexpr float kUnits = 12582912.0F;  // as in requantize_step
  const float reciprocal = 1.0F / scale;
  const __m512 divisor = _mm512_set1_ps(scale);
  const __m512 inverse = _mm512_set1_ps(reciprocal);
  const __m512 rest =
      _mm512_set1_ps(static_cast<float>(1.0 / static_cast<double>(scale) - static_cast<double>(reciprocal)));
  const __m512 low = _mm512_set1_ps(bounds.low);
  const __m512 high = _mm512_set1_ps(bounds.high);
  const __m512 units = _mm512_set1_ps(kUnits);
  const __m512i offset = _mm512_set1_epi32(zero_point - std::bit_cast<int>(kUnits));
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto lanes = static_cast<__mmask16>(count - i >= 16 ? 0xFFFF : (1 << (count - i)) - 1);
    const __m512 value = _mm512_maskz_loadu_ps(lanes, x + i);
    const __m512 near = _mm512_fmadd_ps(value, inverse, _mm512_mul_ps(value, rest));
    // For NaN the result is the second operand.
    const __m512 inside = _mm512_maskz_min_ps(0xFFFF, _mm512_maskz_max_ps(0xFFFF, near, low), high);
    const __m512 quotient = _mm512_fmadd_ps(_mm512_fnmadd_ps(inside, divisor, value), inverse, inside);
    const __m512 bounded = _mm512_maskz_min_ps(0xFFFF, _mm512_maskz_max_ps(0xFFFF, quotient, low), high);
    const __m512i steps = _mm512_add_epi32(_mm512_castps_si512(_mm512_add_ps(bounded, units)), offset);
    _mm512_mask_cvtepi32_storeu_epi8(y + i, lanes, steps);
  }
}
#endif

PIPIT_INLINE inline void quantize_steps_loop(const float* x, float factor, StepBounds bounds, int zero_point,
                                             std::uint8_t* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<std::uint8_t>(requantize_step(x[i] * factor, bounds, zero_point));
  }
}

// Signed integers, which every instruction set compares: the sign bit is gone.
PIPIT_INLINE inline std::int32_t largest_loop(const std::int32_t* bits, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = bits[i] & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// Bits as integers that are ordered as the numbers are, -0 before 0.
PIPIT_INLINE inline std::int32_t ordered(std::int32_t bits) {
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
PIPIT_INLINE inline void range_loop(const std::int32_t* bits, std::int64_t count, std::int32_t* low,
                                    std::int32_t* high) {
  std::int32_t least = 0;
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = ordered(bits[i]);
    least = value < least ? value : least;
    largest = value > largest ? value : largest;
  }
  *low = least;
  *high = largest;
}

PIPIT_INLINE inline void dequantize_loop(const std::uint8_t* x, unsigned flip, int offset, float scale,
                                         float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = steps(x, flip, offset, i) * scale;
}

struct Addend {
  const std::uint8_t* data;
  unsigned flip;
  int offset;
  float scale;
};

template <bool Flips>
PIPIT_INLINE inline void add_loop(const Addend& a, const Addend& b, StepBounds bounds, int zero_point,
                                  std::uint8_t* y, std::int64_t count) {
  const std::uint8_t* p = a.data;
  const std::uint8_t* q = b.data;
  const unsigned a_flip = Flips ? a.flip : 0;
  const unsigned b_flip = Flips ? b.flip : 0;
  const int a_offset = a.offset;
  const int b_offset = b.offset;
  const float a_scale = a.scale;
  const float b_scale = b.scale;
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = steps(p, a_flip, a_offset, i) * a_scale + steps(q, b_flip, b_offset, i) * b_scale;
    y[i] = static_cast<std::uint8_t>(requantize_step(sum, bounds, zero_point));
  }
}

PIPIT_INLINE inline void multiply_loop(const Addend& a, const Addend& b, float multiplier, StepBounds bounds,
                                       int zero_point, std::uint8_t* y, std::int64_t count) {
  const std::uint8_t* p = a.data;
  const std::uint8_t* q = b.data;
  const unsigned a_flip = a.flip;
  const unsigned b_flip = b.flip;
  const int a_offset = a.offset;
  const int b_offset = b.offset;
  // The product of two steps is a whole number below 2^24: exact in f32.
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float product = steps(p, a_flip, a_offset, i) * steps(q, b_flip, b_offset, i);
    y[i] = static_cast<std::uint8_t>(requantize_step(product * multiplier, bounds, zero_point));
  }
}

PIPIT_INLINE inline void multiply_by_one_loop(const Addend& a, float b, float multiplier, StepBounds bounds,
                                              int zero_point, std::uint8_t* y, std::int64_t count) {
  const std::uint8_t* p = a.data;
  const unsigned a_flip = a.flip;
  const int a_offset = a.offset;
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const float product = steps(p, a_flip, a_offset, i) * b;
    y[i] = static_cast<std::uint8_t>(requantize_step(product * multiplier, bounds, zero_point));
  }
}

PIPIT_INLINE inline void requantize_loop(const std::int32_t* sums, float scale, StepBounds bounds,
                                         int zero_point, std::uint8_t* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] =
        static_cast<std::uint8_t>(requantize_step(static_cast<float>(sums[i]) * scale, bounds, zero_point));
  }
}

PIPIT_INLINE inline void scale_loop(const std::int32_t* sums, float scale, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(sums[i]) * scale;
}

PIPIT_INLINE inline void flip_loop(std::uint8_t* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] ^= 0x80U;
}

PIPIT_INLINE inline void join_three(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c,
                                    std::uint8_t* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[3 * i] = a[i];
    y[3 * i + 1] = b[i];
    y[3 * i + 2] = c[i];
  }
}

PIPIT_INLINE inline void join_three_wide(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c,
                                         std::uint16_t flip, std::uint16_t* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[3 * i] = a[i] ^ flip;
    y[3 * i + 1] = b[i] ^ flip;
    y[3 * i + 2] = c[i] ^ flip;
  }
}

PIPIT_INLINE inline void widen_loop(const std::uint8_t* x, std::uint16_t flip, std::uint16_t* y,
                                    std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] ^ flip;
}

PIPIT_INLINE inline void join_three_halves(const Half* a, const Half* b, const Half* c, Half* y,
                                           std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    y[4 * i] = a[i];
    y[4 * i + 1] = b[i];
    y[4 * i + 2] = c[i];
    y[4 * i + 3] = {};
  }
}

}  // namespace

void quantize_span(const float* x, float scale, const ByteTarget& target, std::byte* y, std::int64_t count) {
#if PIPIT_ISA_X86
  // Scales of which no remainder is a denormal number.
  if (chosen_isa() >= Isa::avx512 && scale > 0x1p-60F && scale < 0x1p60F)
    return quantize_avx512(x, scale, target.bounds, target.zero_point, bytes(y), count);
#endif
  simd<quantize_loop>(x, scale, target.bounds, target.zero_point, bytes(y), count);
}

void quantize_steps(const float* x, float factor, const ByteTarget& target, std::byte* y,
                    std::int64_t count) {
  simd<quantize_steps_loop>(x, factor, target.bounds, target.zero_point, bytes(y), count);
}

std::uint32_t largest_magnitude_bits(const float* x, std::int64_t count) {
  return static_cast<std::uint32_t>(simd<largest_loop>(reinterpret_cast<const std::int32_t*>(x), count));
}

ValueRange value_range(const float* x, std::int64_t count) {
  std::int32_t low = 0;
  std::int32_t high = 0;
  simd<range_loop>(reinterpret_cast<const std::int32_t*>(x), count, &low, &high);
  return {std::bit_cast<float>(ordered(low)), std::bit_cast<float>(ordered(high))};
}

void dequantize_span(const ByteSpan& x, float scale, float* y, std::int64_t count) {
  simd<dequantize_loop>(bytes(x.data), static_cast<unsigned>(x.flip), x.offset, scale, y, count);
}

void add_span(const ByteSpan& a, float a_scale, const ByteSpan& b, float b_scale, const ByteTarget& target,
              std::byte* y, std::int64_t count) {
  const Addend first{bytes(a.data), static_cast<unsigned>(a.flip), a.offset, a_scale};
  const Addend second{bytes(b.data), static_cast<unsigned>(b.flip), b.offset, b_scale};
  const auto add = first.flip == 0 && second.flip == 0 ? simd<add_loop<false>> : simd<add_loop<true>>;
  add(first, second, target.bounds, target.zero_point, bytes(y), count);
}

void multiply_span(const ByteSpan& a, const ByteSpan& b, bool one_b, float multiplier,
                   const ByteTarget& target, std::byte* y, std::int64_t count) {
  const Addend x{bytes(a.data), static_cast<unsigned>(a.flip), a.offset, 1};
  const Addend factor{bytes(b.data), static_cast<unsigned>(b.flip), b.offset, 1};
  if (one_b) {
    simd<multiply_by_one_loop>(x, steps(factor.data, factor.flip, factor.offset, 0), multiplier,
                               target.bounds, target.zero_point, bytes(y), count);
  } else {
    simd<multiply_loop>(x, factor, multiplier, target.bounds, target.zero_point, bytes(y), count);
  }
}

void requantize_span(const std::int32_t* sums, float scale, const ByteTarget& target, std::byte* y,
                     std::int64_t count) {
  if (target.real) {
    simd<scale_loop>(sums, scale, reinterpret_cast<float*>(y), count);
  } else {
    simd<requantize_loop>(sums, scale, target.bounds, target.zero_point, bytes(y), count);
  }
}

void flip_signs(std::byte* x, std::int64_t count) {
  simd<flip_loop>(bytes(x), count);
}

void join_planes(const std::byte* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                 std::int64_t count, std::byte* y, std::int64_t pitch) {
  if (channels == 3 && pitch == 3 && step == 1) {
    simd<join_three>(bytes(planes), bytes(planes + plane), bytes(planes + 2 * plane), bytes(y), count);
    return;
  }
  for (std::int64_t p = 0; p < channels; ++p) {
    for (std::int64_t i = 0; i < count; ++i) y[i * pitch + p] = planes[p * plane + i * step];
  }
}

void join_half_planes(const Half* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                      std::int64_t count, Half* y, std::int64_t pitch) {
  constexpr std::int64_t kHalf = sizeof(Half);
  if (channels == 3 && pitch == 4 && step == 1) {
    simd<join_three_halves>(planes, planes + plane, planes + 2 * plane, y, count);
    return;
  }
  if (step == 1) {
    constexpr std::int64_t kRows = 64;
    const auto transpose = transpose_of(sizeof(Half));
    for (std::int64_t i = 0; i < count; i += kRows)
      transpose({reinterpret_cast<std::byte*>(y + i * pitch), reinterpret_cast<const std::byte*>(planes + i),
                 pitch * kHalf, plane * kHalf, std::min(kRows, count - i), channels});
    return;
  }
  for (std::int64_t p = 0; p < channels; ++p) {
    for (std::int64_t i = 0; i < count; ++i) y[i * pitch + p] = planes[p * plane + i * step];
  }
}

void join_planes_wide(const std::byte* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                      std::int64_t count, std::uint16_t* y, std::int64_t pitch, bool flip) {
  const std::uint16_t flipped = flip ? 0x80 : 0;
  const std::uint8_t* x = bytes(planes);
  if (channels == 3 && pitch == 3 && step == 1) {
    simd<join_three_wide>(x, x + plane, x + 2 * plane, flipped, y, count);
    return;
  }
  for (std::int64_t p = 0; p < channels; ++p) {
    for (std::int64_t i = 0; i < count; ++i) y[i * pitch + p] = x[p * plane + i * step] ^ flipped;
  }
}

void widen_bytes(const std::byte* x, std::int64_t count, std::uint16_t* y, bool flip) {
  simd<widen_loop>(bytes(x), flip ? 0x80 : 0, y, count);
}

}  // namespace pipit::internal
