// What the short arithmetic of int8_math.cuh counts on, and the bounds of what is rounded to 16 bits and clamped two at
// a time. No CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "layers/ops/quantization.h"

namespace pipit::cuda {

/// The bits of 1.5 * 2^23 (kMagic in int8_math.cuh), with which small sums begin.
inline constexpr int kMagicBits = 0x4B400000;
/// Sums of this magnitude and above need a conversion instruction.
inline constexpr std::int64_t kSmallSum = std::int64_t{1} << 22;
/// Results in steps that stay below this in magnitude have room in 16 bits when they are rounded.
inline constexpr double kMostSteps = (1 << 15) - 1;

/// Both halves of a word hold the same bound: a half, or a whole number of steps.
struct PairBounds {
  std::uint32_t low = 0, high = 0;

  static std::uint32_t pair_of(std::uint16_t bits) { return bits * 0x10001U; }
  /// Rounding keeps the order, so that results may be rounded first and clamped to rounded bounds.
  static PairBounds of(const StepBounds& bounds) {
    const auto whole = [](float v) {
      return pair_of(static_cast<std::uint16_t>(static_cast<std::int16_t>(std::nearbyint(v))));
    };
    return {whole(bounds.low), whole(bounds.high)};
  }
};

}  // namespace pipit::cuda
