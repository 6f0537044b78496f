// requantize() of layers/ops/quantization.h in a form that every instruction set can vectorize.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/platform/simd.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// The integer as the low byte of the result. Bit for bit requantize(): |x| is at most 255 after clamping, and adding
/// 1.5 * 2^23 leaves no bits below the unit, so the sum is rounded to nearest even as std::nearbyint() does. Its bits
/// less those of 1.5 * 2^23 are the integer: two operations instead of three.
PIPIT_INLINE inline int requantize_step(float x, StepBounds bounds, int zero_point) {
  constexpr float kUnits = 12582912.0F;
  const float above = x > bounds.low ? x : bounds.low;
  const float clamped = above < bounds.high ? above : bounds.high;
  // The zero point joins what is subtracted, once for a loop.
  const std::uint32_t offset = std::bit_cast<std::uint32_t>(kUnits) - static_cast<std::uint32_t>(zero_point);
  return static_cast<int>(std::bit_cast<std::uint32_t>(clamped + kUnits) - offset);
}

}  // namespace pipit::internal
