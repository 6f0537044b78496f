// Rows of elements of any type, whose operands step by one element, stand still, or step further.
#pragma once

#include <cstdint>

#include "engine/platform/simd.h"

namespace pipit::internal {

/// data[0], data[stride], data[2 stride]...
template <typename T>
struct Strided {
  const T* data;
  std::int64_t stride;
};

/// y[i] = f(a[i], b[i]); the cases that vectorize, and any other.
template <typename Y, typename A, typename B, typename F>
PIPIT_INLINE inline void map_typed(Strided<A> a, Strided<B> b, Y* y, std::int64_t n, F f) {
  const A* p = a.data;
  const B* q = b.data;
  if (a.stride == 1 && b.stride == 1) {
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i], q[i]);
  } else if (a.stride == 1 && b.stride == 0) {
    const B value = *q;
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i], value);
  } else if (a.stride == 0 && b.stride == 1) {
    const A value = *p;
    PIPIT_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(value, q[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = f(p[i * a.stride], q[i * b.stride]);
  }
}

}  // namespace pipit::internal
