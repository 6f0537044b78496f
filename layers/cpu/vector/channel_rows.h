// Loops over rows of channels: the innermost dimension of NHWC data. Vectorized for the CPU at hand.
#pragma once

#include <cstdint>

#include "layers/ops/clamp.h"

namespace pipit::internal {

/// Rows of `channels` floats, `stride` floats from one to the next.
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t count = 0;
  std::int64_t channels = 0;
};

/// What a sum of products starts from: y = bias + residual. Both may be null; `residual_stride` is the distance
/// between the residual's rows.
void start_rows(const Rows& y, const float* bias, const float* residual, std::int64_t residual_stride);

/// y = clamp(y); nothing for the identity.
void clamp_rows(const Rows& y, const Clamp& clamp);

/// y = clamp(y + bias + residual) over one row; bias and residual may be null.
void finish_row(float* y, std::int64_t channels, const float* bias, const float* residual,
                const Clamp& clamp);

}  // namespace pipit::internal
