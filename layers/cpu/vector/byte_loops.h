// Loops over contiguous i8 and u8 values, vectorized for the CPU at hand.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/graph/half.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// Values of type i8 or u8: the integer is (byte ^ flip) - offset, less the zero point.
struct ByteSpan {
  const std::byte* data = nullptr;
  int flip = 0;    ///< 0x80 for i8, which makes it u8 plus 128
  int offset = 0;  ///< zero point plus flip

  ByteSpan(const std::byte* bytes, const Quantization& q)
      : data(bytes), flip(q.dtype == DType::i8 ? 0x80 : 0), offset(q.zero_point + flip) {}
};

/// How results are stored: in i8 or u8, or for a Quantization of type f32 as they are, clamped.
struct ByteTarget {
  StepBounds bounds;
  int zero_point = 0;
  bool real = false;

  explicit ByteTarget(const Quantization& y, float low = -INFINITY, float high = INFINITY)
      : bounds(y.quantized() ? step_bounds(y, low, high) : StepBounds{low, high}),
        zero_point(y.zero_point),
        real(!y.quantized()) {}
};

/// y = requantize(x / scale); y is i8 or u8.
void quantize_span(const float* x, float scale, const ByteTarget& target, std::byte* y, std::int64_t count);
/// y = requantize(x * factor).
void quantize_steps(const float* x, float factor, const ByteTarget& target, std::byte* y, std::int64_t count);
/// The largest magnitude_bits(); 0 of none.
std::uint32_t largest_magnitude_bits(const float* x, std::int64_t count);
/// The least and the largest of `count` numbers and 0; a NaN is less or larger than all of them, as its sign says.
struct ValueRange {
  float low = 0;
  float high = 0;
};
ValueRange value_range(const float* x, std::int64_t count);
/// y = (x - zero point) * scale.
void dequantize_span(const ByteSpan& x, float scale, float* y, std::int64_t count);
/// y = requantize((a - zero point) * a_scale + (b - zero point) * b_scale); y, of i8 or u8, may be a or b.
void add_span(const ByteSpan& a, float a_scale, const ByteSpan& b, float b_scale, const ByteTarget& target,
              std::byte* y, std::int64_t count);
/// y = requantize((a - zero point) * (b - zero point) * multiplier); y, of i8 or u8, may be a. With `one_b` the first
/// value of b is that of all.
void multiply_span(const ByteSpan& a, const ByteSpan& b, bool one_b, float multiplier,
                   const ByteTarget& target, std::byte* y, std::int64_t count);
/// y = requantize(sums * scale), or sums * scale for f32.
void requantize_span(const std::int32_t* sums, float scale, const ByteTarget& target, std::byte* y,
                     std::int64_t count);

/// i8 to u8 plus 128 and back, in place.
void flip_signs(std::byte* x, std::int64_t count);
/// y[i * pitch + p] = planes[p * plane + i * step]: `count` pixels of `channels` bytes out of planes.
void join_planes(const std::byte* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                 std::int64_t count, std::byte* y, std::int64_t pitch);
/// The same with results of 16 bits; pitch in results. `flip`: of i8, plus 128.
void join_planes_wide(const std::byte* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                      std::int64_t count, std::uint16_t* y, std::int64_t pitch, bool flip);
/// The same for halves; plane, step and pitch in halves. Where the pitch is 4, three channels are followed by a zero.
void join_half_planes(const Half* planes, std::int64_t plane, std::int64_t step, std::int64_t channels,
                      std::int64_t count, Half* y, std::int64_t pitch);

/// y[i] = x[i], of u8, or with `flip` of i8 and plus 128.
void widen_bytes(const std::byte* x, std::int64_t count, std::uint16_t* y, bool flip);

}  // namespace pipit::internal
