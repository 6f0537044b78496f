// A window over an image of one or two dimensions, axis by axis.
#pragma once

#include <cstdint>

#include "engine/graph/shape.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// Extents of input and output, and the window, along one axis.
struct WindowAxis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t pad = 0;
  std::int64_t x_step = 1;  ///< pixels from one position to the next
  std::int64_t y_step = 1;
  std::int64_t tap_step = 1;  ///< of the weights

  std::int64_t span() const { return (kernel - 1) * dilation + 1; }
  /// The taps inside of the image.
  TapRange taps(std::int64_t output_at) const {
    Window window;
    window.kernel[0] = kernel;
    window.stride[0] = stride;
    window.dilation[0] = dilation;
    window.pad_begin[0] = pad;
    return taps_inside(window, 0, output_at, input);
  }
  /// Likewise, of all outputs together.
  std::int64_t taps_of_all() const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < output; ++i) sum += taps(i).count();
    return sum;
  }
};

struct WindowAxes {
  WindowAxis height;
  WindowAxis width;
};

/// The axes of a window over shapes [N, C, spatial...]; a signal is an image of one row.
inline WindowAxes window_axes(const Window& window, const Shape& x, const Shape& y) {
  WindowAxes axes;
  for (int i = 0; i < window.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    WindowAxis& axis = i == window.rank - 1 ? axes.width : axes.height;
    axis.input = x[2 + i];
    axis.output = y[2 + i];
    axis.kernel = window.kernel[at];
    axis.stride = window.stride[at];
    axis.dilation = window.dilation[at];
    axis.pad = window.pad_begin[at];
  }
  axes.height.x_step = axes.width.input;
  axes.height.y_step = axes.width.output;
  axes.height.tap_step = axes.width.kernel;
  return axes;
}

}  // namespace pipit::internal
