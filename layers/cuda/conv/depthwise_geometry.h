// The depthwise convolutions whose threads slide down rows: what they handle, and what a thread computes.
#pragma once

namespace pipit::cuda {

/// A depthwise convolution of two dimensions, window 3x3, 5x5 or 7x7, the same stride of 1 or 2 along both, dilation 1,
/// any padding; x and y are [batch, h, w, channels].
struct DepthwiseGeometry {
  int batch = 1, channels = 4;  ///< channels: a multiple of 4
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1;
  int pad_h = 0, pad_w = 0;
  int window = 3, stride = 1;
  int columns = 1, rows = 1;  ///< of y that a thread computes
};

}  // namespace pipit::cuda
