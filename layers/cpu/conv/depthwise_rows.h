// How a depthwise convolution on NHWC data is cut into tiles: tasks of output rows, tiles of neighbouring pixels.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/graph/tensor.h"
#include "engine/plan/kernel.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/window.h"

namespace pipit {

/// T: what activations are stored in.
template <typename T>
class DepthwiseRows {
 public:
  using Function = typename DepthwiseKernels<T>::Function;

  /// Shapes [N, C, H, W] and [N, C * m, OH, OW]; bodies get several tiles at once only where m is 1. `padding` is what
  /// is read outside the image. `threads` will share the work.
  DepthwiseRows(const Window& window, const Shape& x, const Shape& y, const DepthwiseKernels<T>& kernels,
                T padding, int threads)
      : window_(window), x_(x), y_(y), side_by_side_(y[1] == x[1]) {
    const std::int64_t width = y_[3];
    const bool wide = ceil_div(width, kWideTile) * kWideTile <= ceil_div(width, kNarrowTile) * kNarrowTile;
    const bool special = window_.dilation[1] == 1 && window_.stride[1] <= 2 && window_.kernel[1] % 2 == 1 &&
                         window_.kernel[1] >= 3 && window_.kernel[1] <= 7;
    tile_ = wide || !special ? kWideTile : kNarrowTile;
    if (special) {
      const auto& pair = kernels.special[(window_.kernel[1] - 3) / 2][window_.stride[1] - 1][wide ? 0 : 1];
      inside_ = pair[0];
      border_ = pair[1];
    } else {
      border_ = kernels.general;
    }
    row_pixels_ = special ? (tile_ - 1) * window_.stride[1] + window_.kernel[1] : tile_ * window_.kernel[1];
    share_out(threads);
    padding_ = HostBuffer(static_cast<std::size_t>(x_[1]) * sizeof(T));
    std::fill_n(reinterpret_cast<T*>(padding_.data()), x_[1], padding);
  }

  /// Most output pixels and channels of a tile.
  std::int64_t tile() const { return tile_; }
  std::int64_t block() const { return block_; }
  /// Scratch that tiles need, before what the body needs; a multiple of 8.
  std::size_t pointer_bytes() const {
    return static_cast<std::size_t>(window_.kernel[0] * (1 + row_pixels_)) * sizeof(const T*);
  }
  /// Floats of the packed weights of one output per channel.
  std::int64_t packed_size() const {
    return ceil_div(x_[1], row_kernels().lanes) * row_kernels().lanes * window_.taps();
  }
  /// Where the packed weights [C / lanes, KH, KW, lanes] have tap 0 of channel c; taps are `lanes` floats apart.
  std::int64_t packed_at(std::int64_t c) const {
    const std::int64_t lanes = row_kernels().lanes;
    return c / lanes * lanes * window_.taps() + c % lanes;
  }

  /// Multiply-accumulates of one output per channel: tiles compute all their pixels and registers whole, and leave out
  /// the rows of taps that lie outside of the image.
  std::int64_t macs() const {
    std::int64_t rows = 0;
    for (std::int64_t row = 0; row < y_[2]; ++row) rows += taps_inside(window_, 0, row, x_[2]).count();
    const std::int64_t lanes = row_kernels().lanes;
    return y_[0] * rows * window_.kernel[1] * round_up(y_[3], tile_) * round_up(x_[1], lanes);
  }

  /// Rows of input that somebody else computes: a block of channels that starts at `channel`, in a ring
  /// [ring][piece_columns()][channels] of which slot 0 holds row `first` of an image. Column 0 of the image is the
  /// piece's column left_columns(), what lies left and right of the image is padding.
  struct Piece {
    const T* x = nullptr;
    std::int64_t first = 0;
    std::int64_t ring = 0;
    std::int64_t channel = 0;
    std::int64_t channels = 0;
  };

  /// Input rows that output rows [begin, end) of an image read.
  std::pair<std::int64_t, std::int64_t> rows_read(std::int64_t begin, std::int64_t end) const {
    const auto at = [&](std::int64_t row) { return row * window_.stride[0] - window_.pad_begin[0]; };
    const std::int64_t first = std::clamp<std::int64_t>(at(begin), 0, x_[2]);
    return {first, std::clamp<std::int64_t>(at(end - 1) + window_.span(0), first, x_[2])};
  }

  /// Rows from the first to the last row of taps.
  std::int64_t rows_of_taps() const { return window_.span(0); }

  /// Tiles of a piece read its padding; where no kernel does, it has none.
  std::int64_t left_columns() const { return inside_ != nullptr ? window_.pad_begin[1] : 0; }
  std::int64_t piece_columns() const {
    if (inside_ == nullptr) return x_[3];
    const std::int64_t last = std::max<std::int64_t>(y_[3] - tile_, 0) * window_.stride[1];
    return std::max(last + row_pixels_, left_columns() + x_[3]);
  }

  /// for_each_tile() for one output row and the channels of a piece that holds what the row reads. `row` counts through
  /// images.
  template <typename Body>
  void for_each_tile_of_piece(const Piece& piece, const float* packed, std::int64_t row, std::byte* scratch,
                              Body&& body) const {
    tile_row({piece.x + left_columns() * piece.channels, piece.first, piece.ring, piece.channels,
              piece_columns(), inside_ != nullptr},
             packed, row, piece.channel, piece.channels, scratch, body);
  }

  /// Calls body(tile, function, first element of the first output pixel, first channel, scratch) for all tiles, which
  /// have their x, weights and counts; the rest is the body's to fill in. The scratch of worker i is at
  /// i * scratch_step; the body gets the part behind pointer_bytes().
  template <typename Body>
  void for_each_tile(const T* x, const float* packed, const RunContext& context, std::size_t scratch_step,
                     Body&& body) const {
    const std::int64_t rows = y_[0] * y_[2];
    context.pool.parallel_for(row_tasks_ * channel_blocks_, [&](std::int64_t task, int worker) {
      std::byte* scratch = context.scratch + static_cast<std::size_t>(worker) * scratch_step;
      const std::int64_t channel = task % channel_blocks_ * block_;
      const std::int64_t part = task / channel_blocks_;
      for (std::int64_t row = rows * part / row_tasks_; row < rows * (part + 1) / row_tasks_; ++row)
        tile_row({x + row / y_[2] * x_[2] * x_[3] * x_[1] + channel, 0, x_[2], x_[1], x_[3], false}, packed,
                 row, channel, std::min(block_, x_[1] - channel), scratch, body);
    });
  }

 private:
  // A task is a block of channels in some neighbouring rows. The block is so narrow that the image rows which an output
  // row reads, and the weights, stay in the first-level cache from row to row: otherwise every value came from the
  // second one again for every row of taps. Few pixels of many channels are shared out by channels alone.
  void share_out(int threads) {
    constexpr std::int64_t kTaskProducts = 1 << 15;  // a microsecond on a fast core
    constexpr std::int64_t kCacheBytes = 24 << 10;   // of a first-level cache of 32 or 48 KiB
    constexpr std::int64_t kNearBytes = 1 << 20;     // half of a second-level cache of 2 MiB
    constexpr std::int64_t kTaskRows = 8;            // so that what neighbouring tasks both read is little
    const auto element = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t lanes = row_kernels().lanes;
    const std::int64_t rows = std::max<std::int64_t>(1, y_[0] * y_[2]);
    std::int64_t unit = lanes;
    std::int64_t wanted = 0;
    if (shares_channels(x_[1], rows * y_[3])) {
      const std::int64_t column = rows * std::max<std::int64_t>(1, y_[3] * window_.taps() * (y_[1] / x_[1]));
      wanted = std::max(4 * lanes, kTaskProducts / column);
      row_tasks_ = 1;
    } else {
      unit = std::max(lanes, 64 / element);  // whole cache lines
      wanted = kCacheBytes / (std::min(window_.span(0), x_[2]) * x_[3] * element + window_.taps() * 4);
      // What comes from the shared cache comes faster in whole rows.
      if ((x_.elements() + y_.elements()) / threads * element > kNearBytes) wanted = x_[1] + unit - 1;
      row_tasks_ = std::clamp<std::int64_t>(rows / (threads * kTaskRows) * threads,
                                            std::min<std::int64_t>(rows, threads), rows);
    }
    wanted = std::max(unit, wanted / unit * unit);
    channel_blocks_ = ceil_div(x_[1], wanted);
    block_ = ceil_div(ceil_div(x_[1], channel_blocks_), unit) * unit;
    channel_blocks_ = ceil_div(x_[1], block_);
  }

  // Where an image's rows lie: in a ring of `ring` rows with row `first` in slot 0, whose column 0 has its first
  // channel of interest at x; elements from pixel to pixel, and pixels from row to row.
  struct Rows {
    const T* x;
    std::int64_t first;
    std::int64_t ring;
    std::int64_t pixel_step;
    std::int64_t columns;
    bool padded;  // left and right of the image there is padding for all tiles
  };

  // One output row, for `channels` input channels from `channel` on. `row` counts through images.
  template <typename Body>
  void tile_row(const Rows& source, const float* packed, std::int64_t row, std::int64_t channel,
                std::int64_t channels, std::byte* scratch, Body&& body) const {
    const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
    const std::int64_t first_row = h.start + h.begin * window_.dilation[0];
    DepthwiseTile<T> tile;
    tile.pixel_step = source.pixel_step;
    tile.row_pixels = row_pixels_;
    tile.rows = h.count();
    tile.weights_step = window_.taps() * row_kernels().lanes;
    tile.channels = channels;
    tile.kernel = window_.kernel[1];
    const T** starts = reinterpret_cast<const T**>(scratch);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int64_t slot = (first_row + r * window_.dilation[0] - source.first) % source.ring;
      starts[r] = source.x + slot * source.columns * source.pixel_step;
    }
    tile.row_starts = starts;
    const float* weights =
        packed + channel * window_.taps() + h.begin * window_.kernel[1] * row_kernels().lanes;
    const T** pixels = starts + window_.kernel[0];

    tile.columns = std::min(tile_, y_[3]);
    // The last tile overlaps its neighbour.
    for (std::int64_t next = 0; next < y_[3]; next += tile.tiles * tile_) {
      const std::int64_t column = std::min(next, y_[3] - tile.columns);
      const std::int64_t start = column * window_.stride[1] - window_.pad_begin[1];
      const std::int64_t room = x_[3] - start - row_pixels_;  // right of the tile's taps
      const bool inside =
          source.padded || (inside_ != nullptr && tile.columns == tile_ && start >= 0 && room >= 0);
      // The tiles from here to the end of the row, or to the last that needs no padding.
      tile.tiles = 1;
      if (inside && side_by_side_) {
        // What they write is still in the first-level cache when the body comes back to it.
        constexpr std::int64_t kWrittenBytes = 8 << 10;
        const std::int64_t near = kWrittenBytes / (tile_ * channels * static_cast<std::int64_t>(sizeof(T)));
        const std::int64_t most = source.padded ? y_[3] : room / (tile_ * window_.stride[1]) + 1;
        tile.tiles =
            std::clamp<std::int64_t>((y_[3] - column) / tile_, 1, std::clamp<std::int64_t>(near, 1, most));
      }
      if (inside) {
        tile.first = start * source.pixel_step;
      } else {
        tile.pixels = pixels;
        point(start, tile, pixels);
      }
      tile.weights = weights;
      body(tile, inside ? inside_ : border_, (row * y_[3] + column) * y_[1], channel,
           scratch + pointer_bytes());
    }
  }

  // The pixels of every row of taps, the first tap of the first output being image column `start`.
  void point(std::int64_t start, const DepthwiseTile<T>& tile, const T** pixels) const {
    const T* padding = reinterpret_cast<const T*>(padding_.data());
    for (std::int64_t h = 0; h < tile.rows; ++h) {
      for (std::int64_t i = 0; i < row_pixels_; ++i) {
        const std::int64_t column =
            start +
            (inside_ != nullptr ? i : i / tile_ * window_.dilation[1] + i % tile_ * window_.stride[1]);
        *pixels++ = column >= 0 && column < x_[3] ? tile.row_starts[h] + column * tile.pixel_step : padding;
      }
    }
  }

  Window window_;
  Shape x_;
  Shape y_;
  Function inside_ = nullptr;
  Function border_ = nullptr;
  bool side_by_side_;  // bodies take several tiles at once
  std::int64_t tile_ = 0;
  std::int64_t row_pixels_ = 0;  // pointers of a tile's row of taps
  std::int64_t block_ = 0;       // channels of a task
  std::int64_t channel_blocks_ = 0;
  std::int64_t row_tasks_ = 0;  // parts into which the rows are cut
  HostBuffer padding_;          // a pixel
};

}  // namespace pipit
