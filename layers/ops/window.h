// Sliding windows of convolution and pooling: the only output-extent formula of the project.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/graph/shape.h"

namespace pipit::internal {

inline constexpr int kMaxSpatial = 3;

/// Geometry of a window over 1 to 3 spatial dimensions, in the order of the tensor's dimensions. Entries at
/// and beyond the rank keep their defaults.
struct Window {
  int rank = 2;
  std::array<std::int64_t, kMaxSpatial> kernel{1, 1, 1};
  std::array<std::int64_t, kMaxSpatial> stride{1, 1, 1};
  std::array<std::int64_t, kMaxSpatial> dilation{1, 1, 1};
  std::array<std::int64_t, kMaxSpatial> pad_begin{0, 0, 0};
  std::array<std::int64_t, kMaxSpatial> pad_end{0, 0, 0};
  bool ceil_mode = false;

  /// (kernel - 1) * dilation + 1: input positions that one output position spans.
  std::int64_t span(int axis) const;
  /// Product of the kernel extents.
  std::int64_t taps() const;
  /// "3x3 s2 p1", "3x3 d2 p2", "2x2 s2 p0,0,1,1"; strides, dilations and pads of 1, 1 and 0 left out.
  std::string str() const;
  friend bool operator==(const Window&, const Window&) = default;
};

/// Throws Error naming `layer` and the value when the rank is not 1 to 3, an extent, stride or dilation is below
/// 1, a pad is negative, or a number is absurd (2^31 or more; more than 2^62 taps).
void check_window(const Window& window, const char* layer);

/// Output positions along one axis (ONNX Conv / MaxPool): floor or, with ceil_mode, ceil of
/// (in + pads - span) / stride, plus 1; with ceil_mode a last window that starts in the end padding is
/// dropped. Throws Error when no window fits.
std::int64_t output_extent(const Window& window, int axis, std::int64_t input);

/// [N, channels, spatial...] for an input [N, C, spatial...]; throws Error when the ranks do not fit.
Shape window_output_shape(const Window& window, const Shape& input, std::int64_t channels);

/// The same window with rank 3: leading dimensions of kernel 1, stride 1 and no padding are prepended.
Window as_3d(const Window& window);

/// Taps of one window that lie inside the input, along one axis: tap k reads position start + k * dilation.
struct TapRange {
  std::int64_t start = 0;  ///< position of tap 0; negative in the begin padding
  std::int64_t begin = 0;  ///< first tap inside
  std::int64_t end = 0;    ///< one past the last tap inside; begin == end: none
  std::int64_t count() const { return end - begin; }
};
TapRange taps_inside(const Window& window, int axis, std::int64_t output, std::int64_t input_extent);

/// A share of the positions of an input [N, C, spatial...] that windows read for certain: less than 1 where strides are
/// wider than windows, or the last window ends before the input does. Of dilated windows what one tap reads, of
/// windows that do not touch those inside of the input.
double window_read_share(const Window& window, const Shape& input);

enum class AutoPad : std::uint8_t { notset, same_upper, same_lower, valid };

/// The window with pads as ONNX auto_pad defines them for the given input extents.
Window resolve_auto_pad(Window window, AutoPad auto_pad, std::span<const std::int64_t> input_spatial);

}  // namespace pipit::internal
