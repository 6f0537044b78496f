#include "layers/cpu/vector/reductions.h"

#include <cmath>
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

// Combines map(x) over all elements: whole vectors lane by lane, then the lanes, then the tail.
template <typename Combine, typename Map>
PIPIT_INLINE inline float fold(const float* x, std::int64_t count, Map map) {
  constexpr Combine kCombine;
  Vector lanes = Vector{} + Combine::kStart;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vector v;
    load(x + i, v);
    map(v);
    kCombine(lanes, v);
  }
  float result = Combine::kStart;
  for (int lane = 0; lane < kLanes; ++lane) kCombine(result, static_cast<float>(lanes[lane]));
  for (; i < count; ++i) {
    float v = x[i];
    map(v);
    kCombine(result, v);
  }
  return result;
}

PIPIT_INLINE inline float max_loop(const float* x, std::int64_t count) {
  return fold<LargerOf>(x, count, [](auto&) PIPIT_INLINE {});
}

PIPIT_INLINE inline float sum_loop(const float* x, std::int64_t count) {
  return fold<Plus>(x, count, [](auto&) PIPIT_INLINE {});
}

PIPIT_INLINE inline float squared_distance_loop(const float* x, std::int64_t count, float center) {
  return fold<Plus>(x, count, [center](auto& v) PIPIT_INLINE { v = (v - center) * (v - center); });
}

}  // namespace

float max_of(const float* x, std::int64_t count) {
  return simd<max_loop>(x, count);
}

float sum_of(const float* x, std::int64_t count) {
  return simd<sum_loop>(x, count);
}

float squared_distance(const float* x, std::int64_t count, float center) {
  return simd<squared_distance_loop>(x, count, center);
}

SpanMoments moments_of(const float* x, std::int64_t count, float epsilon) {
  const auto n = static_cast<float>(count);
  const float mean = sum_of(x, count) / n;
  return {mean, 1 / std::sqrt(squared_distance(x, count, mean) / n + epsilon)};
}

}  // namespace pipit
