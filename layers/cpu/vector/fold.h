// Sums and maxima of neighbouring floats in 16 parts, inside loops of simd<>: every instruction set adds in one order.
#pragma once

#include <cstdint>
#include <limits>

#include "layers/cpu/vector/tap_grid.h"

namespace pipit::internal {

struct LargerOf {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  template <typename T>
  PIPIT_INLINE void operator()(T& result, const T& x) const {
    result = x > result ? x : result;
  }
};
struct Plus {
  static constexpr float kStart = 0;
  template <typename T>
  PIPIT_INLINE void operator()(T& result, const T& x) const {
    result += x;
  }
};

/// An integer for every lane of a V.
template <typename V>
struct LaneNumbers {
  using Type __attribute__((vector_size(sizeof(V)))) = std::int32_t;
};

/// Combines all elements in 16 parts, lane by lane in registers V, the last elements like all others; then the
/// parts, in halves.
template <typename Combine, typename V>
PIPIT_INLINE inline float fold(const float* x, std::int64_t count) {
  constexpr Combine kCombine;
  constexpr std::int64_t kParts = 16;
  constexpr std::int64_t kRegisters = kParts / kLanes<V>;
  float lanes[kParts];
  std::int64_t i = 0;
  if (count < kParts) {
    for (float& lane : lanes) lane = Combine::kStart;
    for (; i < count; ++i) kCombine(lanes[i], x[i]);
  } else {
    V parts[kRegisters];
    for (V& part : parts) part = V{} + Combine::kStart;
    V v;
    for (; i + kParts <= count; i += kParts) {
      for (std::int64_t r = 0; r < kRegisters; ++r) {
        load(x + i + r * kLanes<V>, v);
        kCombine(parts[r], v);
      }
    }
    // The last 16 once more, but for those that are in already.
    typename LaneNumbers<V>::Type number;
    for (int lane = 0; lane < static_cast<int>(kLanes<V>); ++lane) number[lane] = lane;
    const auto first = static_cast<std::int32_t>(kParts - (count - i));
    for (std::int64_t r = 0; r < kRegisters; ++r) {
      load(x + count - kParts + r * kLanes<V>, v);
      v = number + static_cast<std::int32_t>(r * kLanes<V>) >= first ? v : V{} + Combine::kStart;
      kCombine(parts[r], v);
    }
    for (std::int64_t r = 0; r < kRegisters; ++r) store(parts[r], lanes + r * kLanes<V>);
  }
#pragma GCC unroll 4
  for (std::int64_t half = kParts / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) kCombine(lanes[lane], lanes[lane + half]);
  }
  return lanes[0];
}

}  // namespace pipit::internal
