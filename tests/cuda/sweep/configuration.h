// A convolution of which blocks of weights may be left out.
#pragma once

#include <cstdint>
#include <string>

#include "layers/ops/window.h"

namespace pipit::sweep {

/// A square convolution with padding kernel / 2.
struct Configuration {
  std::int64_t batch = 1, in_c = 1, out_c = 1, size = 32, kernel = 1, stride = 1;
  double keep =
      1;  ///< of the blocks of k (16 bytes of channels of one tap); the weights of the others are zero
  std::int64_t panel = 0;  ///< outputs that keep the same blocks; 0: all

  Window window() const;
  Shape x() const { return {batch, in_c, size, size}; }
  Shape weights() const { return {out_c, in_c, kernel, kernel}; }
  Shape y() const { return window_output_shape(window(), x(), out_c); }
  /// "n4 8->16 k3 s1 @64", where blocks are left out with "keep 0.5 per 64"
  std::string name() const;
};

}  // namespace pipit::sweep
