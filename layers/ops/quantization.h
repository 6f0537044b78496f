// The INT8 arithmetic of pipit, in scalar form. Every kernel on every device gives the same bits.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "engine/graph/dtype.h"

namespace pipit::internal {

/// What the integers of a tensor stand for: value = (q - zero_point) * scale. dtype f32 says that it is not
/// quantized; scale and zero point then have no meaning.
struct Quantization {
  float scale = 1;
  int zero_point = 0;
  DType dtype = DType::f32;
  /// The lowest value of the type may occur although the zero point is in the middle, as ONNX has it.
  bool full_range = false;

  bool quantized() const { return dtype != DType::f32; }
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// A layer whose output 0 is, or may be, quantized. Each such layer also derives from it.
class QuantizedOutput {
 public:
  virtual const Quantization& output_quantization() const = 0;

 protected:
  ~QuantizedOutput() = default;
};

/// Throws Error naming `layer` and `operand` unless dtype is f32, or i8 or u8 with a scale that is positive and finite
/// and a zero point of that type.
void check_quantization(const Quantization& q, std::string_view layer, std::string_view operand);

/// The integers that an output may take. Symmetric int8 leaves -128 out, so that negation is exact; so does its image
/// in u8 with zero point 128, unless full_range says otherwise.
struct QuantizedRange {
  int low = 0;
  int high = 0;
};
constexpr QuantizedRange quantized_range(const Quantization& q) {
  if (q.dtype == DType::i8) return {q.zero_point == 0 && !q.full_range ? -127 : -128, 127};
  return {q.zero_point == 128 && !q.full_range ? 1 : 0, 255};
}

/// The bounds of x in requantize(): what is left of [low, high] (real values, as of an activation) in the output's
/// range, in steps of its scale, counted from the zero point.
struct StepBounds {
  float low = 0;
  float high = 0;
};
inline StepBounds step_bounds(const Quantization& y, float low, float high) {
  const QuantizedRange range = quantized_range(y);
  const auto least = static_cast<float>(range.low - y.zero_point);
  const auto most = static_cast<float>(range.high - y.zero_point);
  return {std::clamp(low / y.scale, least, most), std::clamp(high / y.scale, least, most)};
}

/// The specification: a value in steps of the output's scale becomes an integer. Clamped, rounded to nearest with ties
/// to even, and only then moved by the zero point, so that i8 and u8 with zero points 0 and 128 hold the same
/// values. NaN becomes the lower bound.
inline int requantize(float x, const StepBounds& bounds, int zero_point) {
  const float clamped = std::min(x > bounds.low ? x : bounds.low, bounds.high);
  return static_cast<int>(std::nearbyint(clamped)) + zero_point;
}

/// Whether sums (int32) times x.scale * weight_scale / y.scale, computed in this order, are what exact arithmetic gives
/// but for rounding: no step leaves the normal numbers, or no sum reaches half a step of y, so that it does not matter.
bool exact_multiplier(float x_scale, float weight_scale, const Quantization& y);

/// Likewise for integers of up to 16 bits times x.scale / divisor, which must be normal.
inline bool exact_ratio(float x_scale, float divisor) {
  return std::isnormal(x_scale / divisor);
}

/// The bits of |x|. As integers they are ordered like the magnitudes, with infinity and the NaNs above all numbers, so
/// that the largest is found in any order.
inline std::uint32_t magnitude_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x7FFFFFFFU;
}

/// The scale of a tensor that is quantized at run time, and what its values are multiplied by:
/// q = requantize(x * inverse), symmetric.
struct DynamicScale {
  float scale = 1;
  float inverse = 1;
};

/// The specification, for the largest magnitude_bits of the tensor: m / 127 and 127 / m for the magnitude m. 1 and 1
/// for zeros, and where m / 127 would be denormal: everything becomes 0. NaN and NaN for an infinity or a NaN: no scale
/// says anything about the rest, and what is computed with it is NaN.
inline DynamicScale dynamic_scale(std::uint32_t largest) {
  float m = 0;
  std::memcpy(&m, &largest, sizeof m);
  if (!(m < INFINITY))
    return {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()};
  if (m < 127 * FLT_MIN) return {};
  return {m / 127, 127 / m};
}

/// The scale and the zero point (u8) of ONNX DynamicQuantizeLinear.
struct AffineScale {
  float scale = 1.0F / 255;
  int zero_point = 0;

  /// Which integers have: q = requantize(x / scale) with all of u8.
  Quantization quantization() const { return {scale, zero_point, DType::u8, true}; }
};

/// The specification, for the least and the largest value: the 255th part of the range with 0, and how many steps 0 is
/// from its lower end, to the nearest, ties to even. 1 / 255 and 0 for zeros, and where the scale would be denormal.
/// NaN and 0 where one is a NaN or an infinity or the range is: then all integers are 0.
inline AffineScale affine_scale(float low, float high) {
  const float range = (high > 0 ? high : 0) - (low < 0 ? low : 0);
  if (!(low > -INFINITY && high < INFINITY && range < INFINITY))
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float scale = range / 255;
  if (scale < FLT_MIN) return {};
  const float steps = 0 - (low < 0 ? low : 0) / scale;
  return {scale, static_cast<int>(std::nearbyint(std::clamp(steps, 0.0F, 255.0F)))};
}

}  // namespace pipit::internal
