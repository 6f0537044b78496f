#include "layers/cpu/vector/reductions.h"

#include <limits>

#include "layers/cpu/vector/tap_grid.h"

namespace pipit {

namespace {

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

// Combines map(x) over all elements in 16 parts, lane by lane in registers V, then the parts, then the tail.
template <typename Combine, typename V, typename Map>
PIPIT_INLINE inline float fold(const float* x, std::int64_t count, Map map) {
  constexpr Combine kCombine;
  constexpr std::int64_t kParts = 16;
  constexpr std::int64_t kRegisters = kParts / kLanes<V>;
  V parts[kRegisters];
  for (V& part : parts) part = V{} + Combine::kStart;
  std::int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (std::int64_t r = 0; r < kRegisters; ++r) {
      V v;
      load(x + i + r * kLanes<V>, v);
      map(v);
      kCombine(parts[r], v);
    }
  }
  float result = Combine::kStart;
  for (const V& part : parts) {
    for (int lane = 0; lane < kLanes<V>; ++lane) kCombine(result, static_cast<float>(part[lane]));
  }
  for (; i < count; ++i) {
    float v = x[i];
    map(v);
    kCombine(result, v);
  }
  return result;
}

template <typename V>
PIPIT_INLINE inline float max_loop(const float* x, std::int64_t count) {
  return fold<LargerOf, V>(x, count, [](auto&) PIPIT_INLINE {});
}

template <typename V>
PIPIT_INLINE inline float sum_loop(const float* x, std::int64_t count) {
  return fold<Plus, V>(x, count, [](auto&) PIPIT_INLINE {});
}

}  // namespace

float max_of(const float* x, std::int64_t count) {
  return simd<max_loop<ShortVector>, max_loop<Vector>>(x, count);
}

float sum_of(const float* x, std::int64_t count) {
  return simd<sum_loop<ShortVector>, sum_loop<Vector>>(x, count);
}

}  // namespace pipit
