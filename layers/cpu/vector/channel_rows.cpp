#include "layers/cpu/vector/channel_rows.h"

#include <algorithm>

#include "engine/platform/simd.h"

namespace pipit::internal {

namespace {

PIPIT_INLINE inline void add(const float* a, const float* b, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

PIPIT_INLINE inline void clamp_row(float* y, std::int64_t count, float low, float high) {
  const Clamp clamp{low, high};
  for (std::int64_t i = 0; i < count; ++i) y[i] = clamp(y[i]);
}

}  // namespace

void start_rows(const Rows& y, const float* bias, const float* residual, std::int64_t residual_stride) {
  for (std::int64_t r = 0; r < y.count; ++r) {
    float* row = y.data + r * y.stride;
    const float* other = residual != nullptr ? residual + r * residual_stride : nullptr;
    if (bias != nullptr && other != nullptr) {
      simd<add>(bias, other, row, y.channels);
    } else if (bias != nullptr || other != nullptr) {
      std::copy_n(bias != nullptr ? bias : other, y.channels, row);
    } else {
      std::fill_n(row, y.channels, 0.0F);
    }
  }
}

void clamp_rows(const Rows& y, const Clamp& clamp) {
  if (clamp.is_identity()) return;
  for (std::int64_t r = 0; r < y.count; ++r)
    simd<clamp_row>(y.data + r * y.stride, y.channels, clamp.low, clamp.high);
}

void finish_row(float* y, std::int64_t channels, const float* bias, const float* residual,
                const Clamp& clamp) {
  if (bias != nullptr) simd<add>(y, bias, y, channels);
  if (residual != nullptr) simd<add>(y, residual, y, channels);
  if (!clamp.is_identity()) simd<clamp_row>(y, channels, clamp.low, clamp.high);
}

}  // namespace pipit::internal
