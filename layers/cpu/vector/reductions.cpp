#include "layers/cpu/vector/reductions.h"

#include "layers/cpu/vector/fold.h"

namespace pipit::internal {

namespace {

template <typename V>
PIPIT_INLINE inline float max_loop(const float* x, std::int64_t count) {
  return fold<LargerOf, V>(x, count);
}

template <typename V>
PIPIT_INLINE inline float sum_loop(const float* x, std::int64_t count) {
  return fold<Plus, V>(x, count);
}

}  // namespace

float max_of(const float* x, std::int64_t count) {
  return simd<max_loop<ShortVector>, max_loop<Vector>>(x, count);
}

float sum_of(const float* x, std::int64_t count) {
  return simd<sum_loop<ShortVector>, sum_loop<Vector>>(x, count);
}

}  // namespace pipit::internal
