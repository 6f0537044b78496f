// requantise() of layers/quantisation.h in a form that every instruction set can vectorise.
#pragma once

#include "layers/cpu/simd.h"
#include "layers/quantisation.h"

namespace pipit {

/// The integer as the low byte of the result. Bit for bit requantise(): |x| is at most 255 after clamping, and adding
/// 1.5 * 2^23 leaves no bits below the unit, so the sum is rounded to nearest even as std::nearbyint() does.
PIPIT_INLINE inline int requantise_step(float x, StepBounds bounds, int zero_point) {
  constexpr float kUnits = 12582912.0F;
  const float above = x > bounds.low ? x : bounds.low;
  const float clamped = above < bounds.high ? above : bounds.high;
  return static_cast<int>((clamped + kUnits) - kUnits) + zero_point;
}

}  // namespace pipit
