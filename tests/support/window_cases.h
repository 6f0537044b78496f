// Windows for the tests of convolutions, on any device.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "layers/ops/window.h"

namespace pipit::internal::test {

/// Kernel, stride, dilation and padding of some dimensions, uneven on purpose, from pick(low, high). Returns the
/// extents of an image that holds the window: at most `more` beyond the minimum.
template <std::size_t Axes, typename Pick>
std::array<std::int64_t, Axes> random_window_of(Window& window, Pick&& pick, std::int64_t more) {
  std::array<std::int64_t, Axes> extent{};
  window.rank = static_cast<int>(Axes);
  for (std::size_t axis = 0; axis < Axes; ++axis) {
    window.kernel[axis] = pick(1, 4);
    window.stride[axis] = pick(1, 3);
    window.dilation[axis] = pick(1, 2);
    window.pad_begin[axis] = pick(0, 3);
    window.pad_end[axis] = pick(0, 3);
    const std::int64_t least = std::max<std::int64_t>(
        1, window.span(static_cast<int>(axis)) - window.pad_begin[axis] - window.pad_end[axis]);
    extent[axis] = pick(least, least + more);
  }
  return extent;
}

/// The same in two dimensions.
template <typename Pick>
std::array<std::int64_t, 2> random_window(Window& window, Pick&& pick, std::int64_t more) {
  return random_window_of<2>(window, pick, more);
}

/// One case of five gets a single column, which windows do not reach beyond: 1-D convolutions that are written as 2-D.
template <typename Pick>
void maybe_one_column(Window& window, std::array<std::int64_t, 2>& extent, Pick&& pick) {
  if (pick(0, 4) != 0) return;
  window.kernel[1] = extent[1] = 1;
  window.pad_begin[1] = window.pad_end[1] = 0;
}

/// A square window with the same padding on all sides.
inline void set_window(Window& window, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                       std::int64_t pad) {
  window.kernel = {kernel, kernel, 1};
  window.stride = {stride, stride, 1};
  window.dilation = {dilation, dilation, 1};
  window.pad_begin = window.pad_end = {pad, pad, 0};
}

}  // namespace pipit::internal::test
