// What is computed with shapes.
#pragma once

#include <array>
#include <cstdint>

#include "pipit/types.h"

namespace pipit::internal {

/// One number per dimension; entries at and beyond the rank are unspecified.
using Strides = std::array<std::int64_t, kMaxRank>;

/// Maps an axis in [-rank, rank) to [0, rank); throws Error naming `what` otherwise.
int normalize_axis(std::int64_t axis, int rank, const char* what);

/// ONNX multidirectional (NumPy) broadcasting of two shapes; throws Error when they do not match.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace pipit::internal
