// How a depthwise convolution on NHWC or NDHWC data is cut into tiles: tasks of output rows, tiles of neighbouring
// pixels.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/graph/tensor.h"
#include "engine/plan/kernel.h"
#include "layers/common/image.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// T: what activations are stored in.
template <typename T>
class DepthwiseRows {
 public:
  using Function = typename DepthwiseKernels<T>::Function;

  /// Windows that have code of their own: 3, 5 or 7 columns with a stride of 1 or 2, any rows and slices.
  static bool is_special(const Window& window) {
    const auto last = static_cast<std::size_t>(window.rank - 1);
    return window.dilation[last] == 1 && window.stride[last] <= 2 && window.kernel[last] % 2 == 1 &&
           window.kernel[last] >= 3 && window.kernel[last] <= 7;
  }

  /// Shapes [N, C, spatial...] and [N, C * m, spatial...]; bodies get several tiles at once only where m is 1.
  /// `padding` is what is read outside the image. `threads` will share the work.
  DepthwiseRows(const Window& window, const Shape& x, const Shape& y, const DepthwiseKernels<T>& kernels,
                T padding, int threads)
      : window_(as_3d(window)), x_(TensorDesc{x}), y_(TensorDesc{y}), side_by_side_(y[1] == x[1]) {
    const std::int64_t width = y_.extent[2];
    const bool wide = ceil_div(width, kWideTile) * kWideTile <= ceil_div(width, kNarrowTile) * kNarrowTile;
    const bool special = is_special(window_);
    tile_ = wide || !special ? kWideTile : kNarrowTile;
    if (special) {
      const auto& pair = kernels.special[(window_.kernel[2] - 3) / 2][window_.stride[2] - 1][wide ? 0 : 1];
      inside_ = pair[0];
      border_ = pair[1];
    } else {
      border_ = kernels.general;
    }
    row_pixels_ = special ? (tile_ - 1) * window_.stride[2] + window_.kernel[2] : tile_ * window_.kernel[2];
    share_out(threads);
    padding_ = HostBuffer(static_cast<std::size_t>(x_.channels) * sizeof(T));
    std::fill_n(reinterpret_cast<T*>(padding_.data()), x_.channels, padding);
  }

  /// Most output pixels and channels of a tile.
  std::int64_t tile() const { return tile_; }
  std::int64_t block() const { return block_; }
  /// Scratch that tiles need, before what the body needs; a multiple of 8.
  std::size_t pointer_bytes() const {
    return static_cast<std::size_t>(window_.kernel[0] * window_.kernel[1] * (1 + row_pixels_)) *
           sizeof(const T*);
  }
  /// Floats of the packed weights of one output per channel.
  std::int64_t packed_size() const {
    return ceil_div(x_.channels, row_kernels().lanes) * row_kernels().lanes * window_.taps();
  }
  /// Where the packed weights [C / lanes, kernel..., lanes] have tap 0 of channel c; taps are `lanes` floats apart.
  std::int64_t packed_at(std::int64_t c) const {
    const std::int64_t lanes = row_kernels().lanes;
    return c / lanes * lanes * window_.taps() + c % lanes;
  }

  /// Multiply-accumulates of one output per channel: tiles compute all their pixels and registers whole, and leave out
  /// the rows of taps that lie outside of the image, but for those between others.
  std::int64_t macs() const {
    std::int64_t rows = 0;
    for (std::int64_t row = 0; row < y_.extent[0] * y_.extent[1]; ++row) {
      const RowsOfTaps taps = rows_of_taps(row);
      rows += taps.d.count() * taps.h.count();
    }
    const std::int64_t lanes = row_kernels().lanes;
    return y_.batch * rows * window_.kernel[2] * round_up(y_.extent[2], tile_) * round_up(x_.channels, lanes);
  }

  /// Rows of input (of images, not of volumes) that the caller computes: a block of channels that starts at
  /// `channel`, in a ring [ring][piece_columns()][channels] of which slot 0 holds row `first` of an image. Column 0 of
  /// the image is the piece's column left_columns(), what lies left and right of the image is padding.
  struct Piece {
    const T* x = nullptr;
    std::int64_t first = 0;
    std::int64_t ring = 0;
    std::int64_t channel = 0;
    std::int64_t channels = 0;
  };

  /// Input rows that output rows [begin, end) of an image read.
  std::pair<std::int64_t, std::int64_t> rows_read(std::int64_t begin, std::int64_t end) const {
    const auto at = [&](std::int64_t row) { return row * window_.stride[1] - window_.pad_begin[1]; };
    const std::int64_t first = std::clamp<std::int64_t>(at(begin), 0, x_.extent[1]);
    return {first, std::clamp<std::int64_t>(at(end - 1) + window_.span(1), first, x_.extent[1])};
  }

  /// Rows from the first to the last row of taps.
  std::int64_t rows_of_taps() const { return window_.span(1); }

  /// Tiles of a piece read its padding; where no kernel does, it has none.
  std::int64_t left_columns() const { return inside_ != nullptr ? window_.pad_begin[2] : 0; }
  std::int64_t piece_columns() const {
    if (inside_ == nullptr) return x_.extent[2];
    const std::int64_t last = std::max<std::int64_t>(y_.extent[2] - tile_, 0) * window_.stride[2];
    return std::max(last + row_pixels_, left_columns() + x_.extent[2]);
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
  /// i * scratch_step; the body gets the part after pointer_bytes().
  template <typename Body>
  void for_each_tile(const T* x, const float* packed, const RunContext& context, std::size_t scratch_step,
                     Body&& body) const {
    const std::int64_t rows = output_rows();
    const std::int64_t volume = x_.positions() * x_.channels;
    context.pool.parallel_for(row_tasks_ * channel_blocks_, [&](std::int64_t task, int worker) {
      std::byte* scratch = context.scratch + static_cast<std::size_t>(worker) * scratch_step;
      const std::int64_t channel = task % channel_blocks_ * block_;
      const std::int64_t part = task / channel_blocks_;
      for (std::int64_t row = rows * part / row_tasks_; row < rows * (part + 1) / row_tasks_; ++row)
        tile_row({x + row / (y_.extent[0] * y_.extent[1]) * volume + channel, 0, x_.extent[0] * x_.extent[1],
                  x_.channels, x_.extent[2], false},
                 packed, row, channel, std::min(block_, x_.channels - channel), scratch, body);
    });
  }

 private:
  std::int64_t output_rows() const { return y_.batch * y_.extent[0] * y_.extent[1]; }

  // Rows of taps of an output row, which is counted through images. Weights of rows follow each other: where there are
  // several slices, rows outside of the image count too, unless all of them have the same.
  struct RowsOfTaps {
    TapRange d;
    TapRange h;
    bool outside;  // there are rows outside of the image
  };
  RowsOfTaps rows_of_taps(std::int64_t row) const {
    RowsOfTaps taps{taps_inside(window_, 0, row / y_.extent[1] % y_.extent[0], x_.extent[0]),
                    taps_inside(window_, 1, row % y_.extent[1], x_.extent[1]), false};
    if (taps.d.count() > 1 && taps.h.count() < window_.kernel[1]) {
      taps.h.begin = 0;
      taps.h.end = window_.kernel[1];
      taps.outside = true;
    }
    return taps;
  }

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
    const std::int64_t rows = std::max<std::int64_t>(1, output_rows());
    std::int64_t unit = lanes;
    std::int64_t wanted = 0;
    if (shares_channels(x_.channels, rows * y_.extent[2])) {
      const std::int64_t column =
          rows * std::max<std::int64_t>(1, y_.extent[2] * window_.taps() * (y_.channels / x_.channels));
      wanted = std::max(4 * lanes, kTaskProducts / column);
      row_tasks_ = 1;
    } else {
      unit = std::max(lanes, 64 / element);  // whole cache lines
      const std::int64_t row_taps =
          std::min(window_.kernel[0], x_.extent[0]) * std::min(window_.span(1), x_.extent[1]);
      wanted = kCacheBytes / (row_taps * x_.extent[2] * element + window_.taps() * 4);
      // What comes from the shared cache comes faster in whole rows.
      const std::int64_t elements =
          x_.batch * x_.positions() * x_.channels + y_.batch * y_.positions() * y_.channels;
      if (elements / threads * element > kNearBytes) wanted = x_.channels + unit - 1;
      row_tasks_ = std::clamp<std::int64_t>(rows / (threads * kTaskRows) * threads,
                                            std::min<std::int64_t>(rows, threads), rows);
    }
    wanted = std::max(unit, wanted / unit * unit);
    channel_blocks_ = ceil_div(x_.channels, wanted);
    block_ = ceil_div(ceil_div(x_.channels, channel_blocks_), unit) * unit;
    channel_blocks_ = ceil_div(x_.channels, block_);
  }

  // Where an image's rows lie, slice after slice: in a ring of `ring` rows with row `first` in slot 0, whose column 0
  // has its first channel of interest at x; elements from pixel to pixel, and pixels from row to row.
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
    const RowsOfTaps taps = rows_of_taps(row);
    DepthwiseTile<T> tile;
    tile.pixel_step = source.pixel_step;
    tile.row_pixels = row_pixels_;
    tile.rows = taps.d.count() * taps.h.count();
    tile.weights_step = window_.taps() * row_kernels().lanes;
    tile.channels = channels;
    tile.kernel = window_.kernel[2];
    const T** starts = reinterpret_cast<const T**>(scratch);
    point_rows(source, taps, starts);
    tile.row_starts = starts;
    const float* weights =
        packed + channel * window_.taps() +
        (taps.d.begin * window_.kernel[1] + taps.h.begin) * window_.kernel[2] * row_kernels().lanes;
    const T** pixels = starts + window_.kernel[0] * window_.kernel[1];
    const std::int64_t width = x_.extent[2];
    const std::int64_t output_width = y_.extent[2];

    tile.columns = std::min(tile_, output_width);
    // The last tile overlaps its neighbour.
    for (std::int64_t next = 0; next < output_width; next += tile.tiles * tile_) {
      const std::int64_t column = std::min(next, output_width - tile.columns);
      const std::int64_t start = column * window_.stride[2] - window_.pad_begin[2];
      const std::int64_t room = width - start - row_pixels_;  // right of the tile's taps
      const bool inside = source.padded || (inside_ != nullptr && tile.columns == tile_ && !taps.outside &&
                                            start >= 0 && room >= 0);
      // The tiles from here to the end of the row, or to the last that needs no padding.
      tile.tiles = 1;
      if (inside && side_by_side_) {
        // What they write is still in the first-level cache when the body comes back to it.
        constexpr std::int64_t kWrittenBytes = 8 << 10;
        const std::int64_t near = kWrittenBytes / (tile_ * channels * static_cast<std::int64_t>(sizeof(T)));
        const std::int64_t most = source.padded ? output_width : room / (tile_ * window_.stride[2]) + 1;
        tile.tiles = std::clamp<std::int64_t>((output_width - column) / tile_, 1,
                                              std::clamp<std::int64_t>(near, 1, most));
      }
      if (inside) {
        tile.first = start * source.pixel_step;
      } else {
        tile.pixels = pixels;
        point(start, tile, pixels);
      }
      tile.weights = weights;
      body(tile, inside ? inside_ : border_, (row * output_width + column) * y_.channels, channel,
           scratch + pointer_bytes());
    }
  }

  // The rows of taps; null outside of the image.
  void point_rows(const Rows& source, const RowsOfTaps& taps, const T** starts) const {
    for (std::int64_t d = taps.d.begin; d < taps.d.end; ++d) {
      const std::int64_t slice = taps.d.start + d * window_.dilation[0];
      for (std::int64_t h = taps.h.begin; h < taps.h.end; ++h) {
        const std::int64_t row = taps.h.start + h * window_.dilation[1];
        const std::int64_t slot = (slice * x_.extent[1] + row - source.first) % source.ring;
        const bool inside = !taps.outside || (row >= 0 && row < x_.extent[1]);
        *starts++ = inside ? source.x + slot * source.columns * source.pixel_step : nullptr;
      }
    }
  }

  // The pixels of every row of taps, the first tap of the first output being image column `start`.
  void point(std::int64_t start, const DepthwiseTile<T>& tile, const T** pixels) const {
    const T* padding = reinterpret_cast<const T*>(padding_.data());
    for (std::int64_t h = 0; h < tile.rows; ++h) {
      for (std::int64_t i = 0; i < row_pixels_; ++i) {
        const std::int64_t column =
            start +
            (inside_ != nullptr ? i : i / tile_ * window_.dilation[2] + i % tile_ * window_.stride[2]);
        const bool exists = tile.row_starts[h] != nullptr && column >= 0 && column < x_.extent[2];
        *pixels++ = exists ? tile.row_starts[h] + column * tile.pixel_step : padding;
      }
    }
  }

  Window window_;  // three-dimensional
  Image x_;
  Image y_;
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

}  // namespace pipit::internal
