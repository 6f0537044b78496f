// Index mathematics, tile choice and weight packing of the GPU convolutions. Plain C++ apart from the function
// qualifiers, so that it is tested without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/graph/half.h"
#include "layers/cuda/device/fast_division.h"

namespace pipit::internal::cuda {

/// A tile of the output matrix and how many blocks share its depth.
struct ConvTile {
  int rows = 64;
  int columns = 64;
  int splits = 1;
  friend bool operator==(const ConvTile&, const ConvTile&) = default;
};

/// A two-dimensional convolution as a matrix product: rows are the output positions
/// (n, oh, ow), columns the output channels, and k runs over (kernel row, kernel column, input channel).
struct ConvShape {
  int batch = 1, in_h = 1, in_w = 1;
  int in_c = 8;      ///< channels of x, padded to the vector width; in INT8, pairs
  int unstored = 0;  ///< of in_c, the last 4 where x's pixels lie in memory without them: zeros; else 0. INT8
  int out_h = 1, out_w = 1, out_c = 8;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int pad_h = 0, pad_w = 0;  ///< begin pads; end pads are implied by the output extents
  int groups = 1;            ///< weights between them are zeros that are not stored
  bool int8 = false;
  bool bf16 = false;         ///< else fp16, where it is not INT8
  bool real_output = false;  ///< of INT8: y is f32, f16 or bf16, two to four times the bytes
  bool averaged =
      false;  ///< only each image's mean of y is written, by the tile that has all of its positions
  /// Steps along k of tiles of kTileColumns in the mean, where zeros are left out (KeptDepth); 0: none are.
  int kept_steps[3] = {};
  int most_kept_steps[3] = {};  ///< of any of them

  std::int64_t rows() const { return batch * positions(); }
  std::int64_t positions() const { return static_cast<std::int64_t>(out_h) * out_w; }
  std::int64_t depth() const { return static_cast<std::int64_t>(kernel_h) * kernel_w * in_c; }
  /// From one pixel of x to the next.
  PIPIT_HOST_DEVICE int pixel_units() const { return in_c - unstored; }
  /// Whether the tile leaves zeros out: it has a kernel for lists of blocks, and its steps take less time with a list.
  bool lists(const ConvTile& tile) const;
  /// Steps of kTileDepth along k of the tiles, in the mean.
  std::int64_t steps(const ConvTile& tile) const;
  /// Steps of the tile that has most.
  std::int64_t most_steps(const ConvTile& tile) const;
};

/// Where one output position starts to read: input coordinates of tap (0, 0), possibly in the padding.
struct PixelOrigin {
  int image;
  int h;
  int w;
};

/// The origin of matrix row `row` (0 <= row < rows()). positions divides by out_h * out_w, width by out_w.
PIPIT_HOST_DEVICE inline PixelOrigin pixel_origin(const ConvShape& s, const Divisor& positions,
                                                  const Divisor& width, int row) {
  const int image = positions.divide(row);
  const int rest = row - image * (s.out_h * s.out_w);
  const int oh = width.divide(rest);
  return {image, oh * s.stride_h - s.pad_h, (rest - oh * s.out_w) * s.stride_w - s.pad_w};
}

/// A position along k, kept as (kernel row, kernel column, channel).
struct DepthCursor {
  int r = 0;
  int s = 0;
  int c = 0;

  /// Moves on by `step` positions of k. Beyond the last tap r >= kernel_h.
  PIPIT_HOST_DEVICE void advance(const ConvShape& shape, int step) {
    c += step;
    while (c >= shape.in_c) {
      c -= shape.in_c;
      if (++s == shape.kernel_w) {
        s = 0;
        ++r;
      }
    }
  }
};

/// The cursor at position k. channels divides by in_c, width by kernel_w.
PIPIT_HOST_DEVICE inline DepthCursor depth_cursor(const ConvShape& shape, const Divisor& channels,
                                                  const Divisor& width, int k) {
  const int tap = channels.divide(k);
  const int r = width.divide(tap);
  return {r, tap - r * shape.kernel_w, k - tap * shape.in_c};
}

/// 16-byte chunk of a shared-memory row of `chunks` (4 or 8) chunks where logical chunk `chunk` of row `row` is
/// kept, so that the eight rows that ldmatrix reads at once fall into different banks.
template <int Chunks>
PIPIT_HOST_DEVICE constexpr int swizzled_chunk(int row, int chunk) {
  static_assert(Chunks == 4 || Chunks == 8);
  return Chunks == 8 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
}

/// Depth of one pipeline step of every tile, in elements of k.
inline constexpr int kTileDepth = 64;
/// Widest cluster that every GPU with clusters can launch.
inline constexpr int kMaxSplits = 8;

/// The tile sizes that are compiled, largest first.
inline constexpr ConvTile kConvTiles[] = {{128, 128, 1}, {128, 64, 1}, {64, 64, 1}, {64, 32, 1}};
/// Their columns.
inline constexpr int kTileColumns[] = {128, 64, 32};
/// Whether a tile is compiled for lists of blocks as well (KeptDepth). Narrow ones read x again for every few outputs,
/// which from single blocks takes longest.
constexpr bool has_listed_kernel(const ConvTile& tile) {
  return tile.rows == tile.columns;
}
/// Whether the tile has a kernel for the shape: the largest has none for pixels whose end is unstored.
inline bool has_kernel(const ConvShape& shape, const ConvTile& tile) {
  return shape.unstored == 0 || tile.columns < 128;
}

/// Whole images of an averaged shape that a tile holds.
inline int images_of(const ConvShape& shape, const ConvTile& tile) {
  return static_cast<int>(tile.rows / shape.positions());
}
/// Rows of y from one row tile to the next.
inline std::int64_t used_rows(const ConvShape& shape, const ConvTile& tile) {
  return shape.averaged ? images_of(shape, tile) * shape.positions() : tile.rows;
}

/// How much longer a step of the tile takes where blocks are listed, or pixels are copied 8 bytes at a time.
double step_factor(const ConvShape& shape, const ConvTile& tile);

/// Blocks of a launch.
std::int64_t blocks_of(const ConvShape& shape, const ConvTile& tile);

/// Whether a launch gains by starting while the previous kernel still runs: it saves the start-up time, but the
/// blocks then crowd on the multiprocessors that were idle, which costs more when there is one long wave of them.
bool pays_to_overlap(const ConvShape& shape, const ConvTile& tile, int processors);

/// A tile and whether its launch overlaps with the previous kernel.
struct ConvVariant {
  ConvTile tile;
  bool overlap = false;
  /// "128x64", "64x64/4" for splits of 4, with "+overlap".
  std::string name() const;
};

/// What a launch takes.
using VariantCost = std::function<double(const ConvVariant&)>;

/// The variants of a convolution, those that cost least first: all tiles that are compiled for it, for averages those
/// that hold an image, in all splits of the depth. Splits > 1 only where the GPU has clusters.
/// Whether launches overlap stays with pays_to_overlap: a kernel that is timed alone always gains, since it is its own
/// neighbour, while in a network its blocks delay those of other kernels. Without clusters launches cannot overlap at
/// all.
std::vector<ConvVariant> conv_variants(const ConvShape& shape, int processors, bool clusters,
                                       const VariantCost& cost);

/// The output channel, within its 32, that a row of INT8 weights is for. A lane of an m16n8 accumulator has columns 2 t
/// and 2 t + 1 of every eight: so four of them give it the neighbouring channels 8 t to 8 t + 7.
PIPIT_HOST_DEVICE constexpr int packed_channel(int row) {
  return (row & ~31) + (row >> 1 & 3) * 8 + (row >> 3 & 3) * 2 + (row & 1);
}

/// Values per output channel in the order of those rows.
template <typename T>
std::vector<T> in_packed_order(std::vector<T> values, std::size_t rows) {
  values.resize(rows);
  std::vector<T> packed(rows);
  for (std::size_t r = 0; r < rows; ++r)
    packed[r] = values[static_cast<std::size_t>(packed_channel(static_cast<int>(r)))];
  return packed;
}

// Which blocks of k the tiles of an implicit-GEMM convolution multiply: all, or those whose weights are not all zero.
// Plain C++, so that it is tested without a GPU.

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
/// the opposite: what is kept of other groups' channels is multiplied by zero, and such an x makes NaN.
class KeptDepth {
 public:
  /// All blocks, for every tile.
  explicit KeptDepth(const ConvShape& shape);
  /// The blocks with weights other than zero: float, or bytes, of which two are a unit.
  /// weights [out_c, channels / groups, kernel_h, kernel_w] in row-major order, channels <= those of shape.in_c.
  template <typename T>
  KeptDepth(const ConvShape& shape, int channels, std::span<const T> weights);

  bool all() const { return all_; }
  /// The blocks of outputs [tile * columns, (tile + 1) * columns), ascending: tap * (blocks of a tap) + place in it.
  /// columns: a multiple of 32.
  std::vector<int> blocks(int tile, int columns) const;
  /// Steps of kTileDepth of that tile, at least one.
  int steps(int tile, int columns) const;
  /// The maximum number of steps of any tile of `columns` columns.
  int most_steps(int columns) const;
  /// kept_steps and most_kept_steps of the shape: of the tiles that there are, 0 where none leaves anything out.
  void describe(ConvShape& shape) const;
  /// The share of all blocks of all outputs that tiles of `columns` columns keep; with groups, of the blocks that reach
  /// a channel of a group of the tile.
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

/// What the kernel reads: the blocks of every tile of `columns` columns, each list filled up to most_steps with zeros.
std::vector<DepthBlock> depth_blocks(const ConvShape& shape, const KeptDepth& depth, int columns);

/// Weights [out_c, channels / groups, kernel_h, kernel_w] in row-major order as the right-hand matrix: rows are output
/// channels (count rounded up to `columns`, the rest zero), and of k, innermost, what the row's tile keeps, filled up
/// with zeros to most_steps. channels <= shape.in_c; the channels beyond are zero. The bits of f16, of bf16 where
/// shape.bf16.
std::vector<std::uint16_t> pack_conv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                             const float* weights, int columns);
/// The same, rows in the order of packed_channel.
std::vector<std::uint16_t> pack_conv_weights_by_lane(const ConvShape& shape, const KeptDepth& depth,
                                                     int channels, const float* weights, int columns);
/// The same for bytes, rows in the order of packed_channel: shape.in_c and kTileDepth count pairs of them.
std::vector<std::int8_t> pack_qconv_weights(const ConvShape& shape, const KeptDepth& depth, int channels,
                                            const std::int8_t* weights, int columns);

}  // namespace pipit::internal::cuda
