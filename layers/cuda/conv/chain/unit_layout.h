// A chain of convolutions, as far as kernels that compute several in one launch have to know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::internal::cuda {

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

// Units: what kernels whose weights stay in shared memory multiply at once, 64 positions x 64 outputs for 64 elements
// of k. Where weights lie there, and which outputs a lane gets. No CUDA.

inline constexpr int kUnitRows = 64;      ///< positions of a tile
inline constexpr int kUnitChannels = 64;  ///< outputs, and elements of k

/// Positions of images, row by row, one after the other.
struct PositionGrid {
  Divisor image, row;  ///< positions of an image and of a row
  int height = 0, positions = 0;
};

/// A lane of four that share a row has, of a unit's 64 sums, 16: sum `index` (0 to 15) of the lane `lane` (0 to 3) is
/// column `lane * 2 + index / 2 * 8 + index % 2`.
constexpr int unit_column(int lane, int index) {
  return lane * 2 + index / 2 * 8 + index % 2;
}
/// The output of its unit that a column computes. Stored: 16 bytes of a lane's are neighbours, and the four lanes' are.
/// Else they are the left operands of the next product as it wants them.
int unit_output(bool stored, int element_bytes, int column);

/// Where byte `byte` of row `row` of a unit lies in it: 16 bytes are swizzled as the copy engine and the products want
/// it.
int swizzled_byte(int row, int byte, int row_bytes);

/// The weights of a unit of outputs and some channels of a tap, of [out_c][taps][in_c], as they lie in shared memory:
/// rows of 64 or 128 bytes.
void pack_unit(const std::byte* weights, int in_c, int taps, int tap, int first_channel, int first_output,
               bool stored, int element_bytes, std::byte* to, int channels = kUnitChannels);
/// 64 values of 4 bytes in the order in which lanes read them: 16 bytes of four lanes are neighbours.
void pack_unit_constants(const std::byte* values, bool stored, int element_bytes, std::byte* to);

}  // namespace pipit::internal::cuda
