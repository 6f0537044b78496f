// Reductions over contiguous floats. The order of additions is fixed (16 partial sums), so every instruction set
// and every thread count gives the same bits; the rounding error grows with count / 16 epsilon.
#pragma once

#include <cstdint>

namespace pipit {

/// The largest element; -infinity for none. NaN elements are passed over.
float max_of(const float* x, std::int64_t count);
float sum_of(const float* x, std::int64_t count);
/// Sum of (x - center)^2.
float squared_distance(const float* x, std::int64_t count, float center);

/// Mean and 1 / sqrt(variance + epsilon), in two passes.
struct SpanMoments {
  float mean = 0;
  float inverse_deviation = 0;
};
SpanMoments moments_of(const float* x, std::int64_t count, float epsilon);

}  // namespace pipit
