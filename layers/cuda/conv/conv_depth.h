// Which blocks of k the tiles of an implicit-GEMM convolution multiply: all, or those whose weights are not all zero.
// Plain C++, so that it is tested without a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::cuda {

/// Where a block of k lies in x: neighbouring channels of one tap, as many as are copied at once.
struct DepthBlock {
  std::int32_t offset = 0;     ///< in units, from tap (0, 0) and channel 0; odd: its last ones are unstored
  std::int16_t down = 0x7FFF;  ///< rows of x from tap (0, 0); 0x7FFF is below every image: zeros
  std::int16_t right = 0;      ///< columns
  friend bool operator==(const DepthBlock&, const DepthBlock&) = default;
};

/// Units of a block: 8, or the 4 of a narrow image's pixel.
constexpr int block_units(const ConvShape& shape) {
  return shape.in_c == 4 ? 4 : 8;
}

/// What a tile leaves out is multiplied with nothing but zeros in all of its outputs: without it sums are the same, but
/// for the sign of a zero and for what an infinity or a NaN of x times zero would have made of them. With groups it is
/// the other way round: what is kept of other groups' channels is multiplied by zero, and such an x makes NaN.
class KeptDepth {
 public:
  /// All blocks, for every tile.
  explicit KeptDepth(const ConvShape& shape);
  /// Those with weights other than zero: float, or bytes, of which two are a unit.
  /// weights [out_c, channels / groups, kernel_h, kernel_w] in row-major order, channels <= those of shape.in_c.
  template <typename T>
  KeptDepth(const ConvShape& shape, int channels, std::span<const T> weights);

  bool all() const { return all_; }
  /// The blocks of outputs [tile * columns, (tile + 1) * columns), ascending: tap * (blocks of a tap) + place in it.
  /// columns: a multiple of 32.
  std::vector<int> blocks(int tile, int columns) const;
  /// Steps of kTileDepth of that tile, at least one.
  int steps(int tile, int columns) const;
  /// The most steps of any tile of so many columns.
  int most_steps(int columns) const;
  /// kept_steps and most_kept_steps of the shape: of the tiles that there are, 0 where none leaves anything out.
  void describe(ConvShape& shape) const;
  /// Of all blocks of all outputs the share that tiles of so many columns keep; with groups of those that reach a
  /// channel of a group of the tile.
  double share(int columns) const;

 private:
  static constexpr int kPanel = 32;  // outputs that are looked at together
  int block_units_;
  int count_;  // blocks of k
  int outputs_, groups_;
  int taps_ = 1, channels_ = 0, values_ = 1;  // of x, and of a block; of what is not all
  bool all_ = true;
  // Blocks of k that reach a channel of a group of the tile.
  int reached(int tile, int columns) const;
  std::vector<std::vector<bool>> panels_;  // of every panel the blocks with weights; empty where all are kept
};

/// What the kernel reads: the blocks of every tile of so many columns, each list filled up to most_steps with zeros.
std::vector<DepthBlock> depth_blocks(const ConvShape& shape, const KeptDepth& depth, int columns);

/// Weights [out_c, channels / groups, kernel_h, kernel_w] in row-major order as the right-hand matrix: rows are output
/// channels (count rounded up to `columns`, the rest zero), and of k, innermost, what the row's tile keeps, filled up
/// with zeros to most_steps. channels <= shape.in_c; the channels beyond are zero.
std::vector<Half> pack_conv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                    const float* weights, int columns);
/// The same, rows in the order of packed_channel.
std::vector<Half> pack_conv_weights_by_lane(const ConvShape& shape, const KeptDepth& depth, int channels,
                                            const float* weights, int columns);
/// The same for bytes, rows in the order of packed_channel: shape.in_c and kTileDepth count pairs of them.
std::vector<std::int8_t> pack_qconv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                            const std::int8_t* weights, int columns);

}  // namespace pipit::cuda
