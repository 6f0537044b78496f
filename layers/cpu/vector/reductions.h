// Reductions over contiguous floats. The order of additions is fixed (16 partial sums), so every instruction set
// and every thread count gives the same bits; the rounding error grows with count / 16 epsilon.
#pragma once

#include <cstdint>

namespace pipit::internal {

/// The largest element; -infinity for none. NaN elements are passed over.
float max_of(const float* x, std::int64_t count);
float sum_of(const float* x, std::int64_t count);

}  // namespace pipit::internal
