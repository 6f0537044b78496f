// Which convolutions of a grid are swept, and in which order.
#pragma once

#include <cstddef>
#include <vector>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// `count` different points at random, in random order; those of a smaller count come first in a larger one. All of
/// them, in their order, for a count of 0 or as many as there are.
std::vector<tools::ConvPoint> sample(std::vector<tools::ConvPoint> points, std::size_t count, unsigned seed);

/// Points of one input shape next to each other, otherwise in their order.
std::vector<tools::ConvPoint> by_input(const std::vector<tools::ConvPoint>& points);

}  // namespace pipit::internal::detail
