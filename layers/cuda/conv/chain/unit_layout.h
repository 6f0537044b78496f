// A chain of convolutions, as far as kernels that compute several in one launch have to know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::internal::cuda {

/// What is multiplied.
enum class ChainElement : std::uint8_t { i8, f16, bf16 };

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
  bool bf16 = false;  ///< of 2 bytes: else halves

  int rows() const { return images * height; }
  ChainElement element() const {
    return element_bytes == 1 ? ChainElement::i8 : bf16 ? ChainElement::bf16 : ChainElement::f16;
  }
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
inline int unit_output(bool stored, int element_bytes, int column) {
  const int lane = column / 2 % 4, index = column / 8 * 2 + column % 2;
  if (stored) {
    const int neighbours = 16 / element_bytes;  // that 16 bytes hold
    return index / neighbours * 4 * neighbours + lane * neighbours + index % neighbours;
  }
  return element_bytes == 2 ? column : index / 4 * 16 + lane * 4 + index % 4;
}

/// Where byte `byte` of row `row` of a unit lies in it: 16 bytes are swizzled as the copy engine and the products want
/// it.
inline int swizzled_byte(int row, int byte, int row_bytes) {
  const int at = row * row_bytes + byte;
  return at ^ (at >> 3 & (row_bytes == 128 ? 0x70 : 0x30));
}

/// The weights of a unit of outputs and some channels of a tap, of [out_c][taps][in_c], as they lie in shared memory:
/// rows of 64 or 128 bytes.
inline void pack_unit(const std::byte* weights, int in_c, int taps, int tap, int first_channel,
                      int first_output, bool stored, int element_bytes, std::byte* to,
                      int channels = kUnitChannels) {
  const int row_bytes = channels * element_bytes;
  for (int column = 0; column < kUnitChannels; ++column) {
    const std::int64_t output = first_output + unit_output(stored, element_bytes, column);
    const std::byte* from =
        weights + ((output * taps + tap) * in_c + first_channel) * std::int64_t{element_bytes};
    for (int byte = 0; byte < row_bytes; byte += 16)
      std::memcpy(to + swizzled_byte(column, byte, row_bytes), from + byte, 16);
  }
}

/// A convolution's weights, [out_c][taps][in_c].
struct UnitWeights {
  int in_c = 0, out_c = 0, taps = 1, element_bytes = 1;
};
/// All units of a convolution (pack_unit): by `inner` outputs, taps, `inner` channels, units of these outputs.
inline void append_units(const std::byte* weights, const UnitWeights& of, bool stored, int inner,
                         std::vector<std::byte>& to) {
  const auto bytes = static_cast<std::size_t>(kUnitChannels) * inner * of.element_bytes;
  for (int output = 0; output < of.out_c; output += inner) {
    for (int tap = 0; tap < of.taps; ++tap) {
      for (int channel = 0; channel < of.in_c; channel += inner) {
        for (int unit = output; unit < output + inner; unit += kUnitChannels) {
          to.resize(to.size() + bytes);
          pack_unit(weights, of.in_c, of.taps, tap, channel, unit, stored, of.element_bytes,
                    to.data() + to.size() - bytes, inner);
        }
      }
    }
  }
}

/// 64 values of 4 bytes in the order in which lanes read them: 16 bytes of four lanes are neighbours.
inline void pack_unit_constants(const std::byte* values, bool stored, int element_bytes, std::byte* to) {
  for (int lane = 0; lane < 4; ++lane) {
    for (int index = 0; index < 16; ++index) {
      std::memcpy(to + (index / 4 * 16 + lane * 4 + index % 4) * 4,
                  values + unit_output(stored, element_bytes, unit_column(lane, index)) * 4, 4);
    }
  }
}

// Residual blocks: what the kernels that compute one, or its end, share.

inline constexpr int kBlockChunkBytes =
    128;  ///< of a position's channels of x, which are copied at once for a tile
inline constexpr int kBlockSlotBytes = kUnitRows * kBlockChunkBytes;
inline constexpr int kBlockMaxShared = 227 << 10;  ///< bytes that a block of threads may take on Hopper
inline constexpr int kBlockReserved = 2
                                      << 10;  ///< of them: barriers, counters, the alignment of what follows

}  // namespace pipit::internal::cuda
