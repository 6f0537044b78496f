// Which convolutions of a grid are swept, and in which order.
#pragma once

#include <cstddef>
#include <vector>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// `count` different points at random, in random order; a smaller count gives the first ones of a larger count. All
/// points, in their order, if `count` is 0 or at least their number.
std::vector<tools::ConvPoint> sample(std::vector<tools::ConvPoint> points, std::size_t count, unsigned seed);

/// Points of one input shape next to each other, otherwise in their order.
std::vector<tools::ConvPoint> by_input(const std::vector<tools::ConvPoint>& points);

}  // namespace pipit::internal::detail
