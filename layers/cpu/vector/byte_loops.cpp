#include "layers/cpu/vector/byte_loops.h"

#include "engine/platform/simd.h"
#include "layers/cpu/vector/requantize.h"

namespace pipit {

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

PIPIT_INLINE inline void add_loop(const Addend& a, const Addend& b, StepBounds bounds, int zero_point,
                                  std::uint8_t* y, std::int64_t count) {
  const std::uint8_t* p = a.data;
  const std::uint8_t* q = b.data;
  const unsigned a_flip = a.flip;
  const unsigned b_flip = b.flip;
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
  simd<quantize_loop>(x, scale, target.bounds, target.zero_point, bytes(y), count);
}

void quantize_steps(const float* x, float factor, const ByteTarget& target, std::byte* y,
                    std::int64_t count) {
  simd<quantize_steps_loop>(x, factor, target.bounds, target.zero_point, bytes(y), count);
}

std::uint32_t largest_magnitude_bits(const float* x, std::int64_t count) {
  return static_cast<std::uint32_t>(simd<largest_loop>(reinterpret_cast<const std::int32_t*>(x), count));
}

void dequantize_span(const ByteSpan& x, float scale, float* y, std::int64_t count) {
  simd<dequantize_loop>(bytes(x.data), static_cast<unsigned>(x.flip), x.offset, scale, y, count);
}

void add_span(const ByteSpan& a, float a_scale, const ByteSpan& b, float b_scale, const ByteTarget& target,
              std::byte* y, std::int64_t count) {
  simd<add_loop>({bytes(a.data), static_cast<unsigned>(a.flip), a.offset, a_scale},
                 {bytes(b.data), static_cast<unsigned>(b.flip), b.offset, b_scale}, target.bounds,
                 target.zero_point, bytes(y), count);
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
  if (channels == 3 && pitch == 4 && step == 1) {
    simd<join_three_halves>(planes, planes + plane, planes + 2 * plane, y, count);
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

}  // namespace pipit
