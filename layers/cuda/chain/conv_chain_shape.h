// A chain of convolutions, as far as kernels that compute several in one launch have to know it.
#pragma once

#include <vector>

namespace pipit::cuda {

/// A convolution of a chain: 1x1, or 3x3 with one pixel of padding all around, stride 1. Values: what the chain reads
/// comes first, then what its convolutions compute in their order.
struct ChainConv {
  int x = 0;
  int residual = -1;
  int in_c = 0, out_c = 0;
  bool window = false;  ///< 3x3
};

struct ConvChainShape {
  int images = 1, height = 0, width = 0;
  int element_bytes = 2;
  std::vector<int> inputs;  ///< channels of what the chain reads
  std::vector<ChainConv> convs;

  int rows() const { return images * height; }
};

}  // namespace pipit::cuda
