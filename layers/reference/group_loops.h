// Layers that normalize over groups of elements: one loop over the groups, one inside each.
#pragma once

#include <cmath>

#include "layers/common/strided_loop.h"

namespace pipit::internal {

template <std::size_t Operands>
struct GroupLoops {
  StridedLoop<Operands> groups;  ///< all dimensions outside [begin, end)
  StridedLoop<Operands> inside;  ///< dimensions [begin, end), in row-major order
};

/// Loops over `shape` with operands of the given strides; dimensions [begin, end) form the groups.
template <std::size_t Operands>
GroupLoops<Operands> group_loops(const Shape& shape, int begin, int end,
                                 const std::array<Strides, Operands>& strides) {
  GroupLoops<Operands> loops;
  for (int d = 0; d < shape.rank(); ++d) {
    typename StridedLoop<Operands>::Offsets step;
    for (std::size_t k = 0; k < Operands; ++k) step[k] = strides[k][static_cast<std::size_t>(d)];
    (d >= begin && d < end ? loops.inside : loops.groups).add(shape[d], step);
  }
  return loops;
}

/// Mean and 1 / standard deviation over one group; x points at the group, operand 1 of the loop.
struct Moments {
  double mean = 0;
  double inverse_deviation = 0;
};

template <typename T, std::size_t Operands>
Moments moments(const StridedLoop<Operands>& inside, const T* x, double epsilon, bool rms = false) {
  const auto count = static_cast<double>(inside.size());
  double sum = 0;
  if (!rms) inside.for_each([&](const auto& at) { sum += x[at[1]]; });
  const double mean = sum / count;
  double squares = 0;
  inside.for_each([&](const auto& at) { squares += (x[at[1]] - mean) * (x[at[1]] - mean); });
  return {mean, 1 / std::sqrt(squares / count + epsilon)};
}

}  // namespace pipit::internal
