// How a depthwise convolution on NHWC data is cut into tiles: tasks of output rows, tiles of neighbouring pixels.
#pragma once

#include <algorithm>
#include <cstring>

#include "engine/kernel.h"
#include "engine/tensor.h"
#include "layers/cpu/chunks.h"
#include "layers/cpu/row_kernels.h"
#include "layers/window.h"

namespace pipit {

/// T: what activations are stored in.
template <typename T>
class DepthwiseRows {
 public:
  using Function = typename DepthwiseKernels<T>::Function;

  /// Shapes [N, C, H, W] and [N, C * m, OH, OW]. `padding` is what is read outside the image. `threads` will share the
  /// work.
  DepthwiseRows(const Window& window, const Shape& x, const Shape& y, const DepthwiseKernels<T>& kernels,
                T padding, int threads)
      : window_(window), x_(x), y_(y) {
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
  /// Scratch of one worker with `own` bytes for the body: whole pairs of cache lines, which are fetched together, so that
  /// workers do not write to one line.
  std::size_t worker_bytes(std::size_t own = 0) const { return (pointer_bytes() + own + 127) / 128 * 128; }
  /// Floats of the packed weights of one output per channel.
  std::int64_t packed_size() const {
    return ceil_div(x_[1], row_kernels().lanes) * row_kernels().lanes * window_.taps();
  }
  /// Where the packed weights [C / lanes, KH, KW, lanes] have tap 0 of channel c; taps are `lanes` floats apart.
  std::int64_t packed_at(std::int64_t c) const {
    const std::int64_t lanes = row_kernels().lanes;
    return c / lanes * lanes * window_.taps() + c % lanes;
  }

  /// Calls body(tile, function, first element of the first output pixel, first channel, scratch) for all tiles, which
  /// have their x, weights and counts; the rest is the body's to fill in. The scratch of worker i is at i * scratch_step,
  /// a result of worker_bytes(); the body gets the part that is its own, at a multiple of 8 bytes.
  template <typename Body>
  void for_each_tile(const T* x, const float* packed, const RunContext& context, std::size_t scratch_step,
                     Body&& body) const {
    const std::int64_t rows = y_[0] * y_[2];
    context.pool.parallel_for(row_tasks_ * channel_blocks_, [&](std::int64_t task, int worker) {
      std::byte* scratch = context.scratch + static_cast<std::size_t>(worker) * scratch_step;
      const std::int64_t channel = task % channel_blocks_ * block_;
      const std::int64_t part = task / channel_blocks_;
      for (std::int64_t row = rows * part / row_tasks_; row < rows * (part + 1) / row_tasks_; ++row)
        for_each_tile_of_row(x, packed, row, channel, scratch, body);
    });
  }

 private:
  std::size_t pointer_bytes() const {
    return static_cast<std::size_t>(window_.kernel[0] * row_pixels_) * sizeof(const T*);
  }
  static std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

  // A task is a block of channels in some neighbouring rows. The block is so narrow that the image rows which an output
  // row reads, and the weights, stay in the first-level cache from row to row: otherwise every value came from the second
  // one again for every row of taps. Few pixels of many channels are shared out by channels alone.
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

  // One output row, for the block of input channels from `channel` on. `row` counts through images.
  template <typename Body>
  void for_each_tile_of_row(const T* x, const float* packed, std::int64_t row, std::int64_t channel,
                            std::byte* scratch, Body&& body) const {
    const std::int64_t channels = x_[1];
    const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
    const std::int64_t first_row = h.start + h.begin * window_.dilation[0];
    DepthwiseTile<T> tile;
    tile.row_step = window_.dilation[0] * x_[3] * channels;
    tile.pixel_step = channels;
    tile.row_pixels = row_pixels_;
    tile.rows = h.count();
    tile.weights_step = window_.taps() * row_kernels().lanes;
    tile.channels = std::min(block_, channels - channel);
    tile.kernel = window_.kernel[1];
    const T* from = x + (row / y_[2] * x_[2] + first_row) * x_[3] * channels + channel;
    const float* weights =
        packed + channel * window_.taps() + h.begin * window_.kernel[1] * row_kernels().lanes;
    const T** pixels = reinterpret_cast<const T**>(scratch);

    tile.columns = std::min(tile_, y_[3]);
    // The last tile overlaps its neighbour.
    for (std::int64_t next = 0; next < y_[3]; next += tile_) {
      const std::int64_t column = std::min(next, y_[3] - tile.columns);
      const std::int64_t start = column * window_.stride[1] - window_.pad_begin[1];
      const bool inside =
          inside_ != nullptr && tile.columns == tile_ && start >= 0 && start + row_pixels_ <= x_[3];
      if (inside) {
        tile.x = from + start * channels;
      } else {
        tile.pixels = pixels;
        point(from, start, tile, pixels);
      }
      tile.weights = weights;
      body(tile, inside ? inside_ : border_, (row * y_[3] + column) * y_[1], channel,
           scratch + pointer_bytes());
    }
  }

  // The pixels of every row of taps, the first tap of the first output being image column `start`.
  void point(const T* x, std::int64_t start, const DepthwiseTile<T>& tile, const T** pixels) const {
    const T* padding = reinterpret_cast<const T*>(padding_.data());
    for (std::int64_t h = 0; h < tile.rows; ++h) {
      for (std::int64_t i = 0; i < row_pixels_; ++i) {
        const std::int64_t column =
            start +
            (inside_ != nullptr ? i : i / tile_ * window_.dilation[1] + i % tile_ * window_.stride[1]);
        *pixels++ = column >= 0 && column < x_[3] ? x + h * tile.row_step + column * x_[1] : padding;
      }
    }
  }

  Window window_;
  Shape x_;
  Shape y_;
  Function inside_ = nullptr;
  Function border_ = nullptr;
  std::int64_t tile_ = 0;
  std::int64_t row_pixels_ = 0;  // pointers of a tile's row of taps
  std::int64_t block_ = 0;       // channels of a task
  std::int64_t channel_blocks_ = 0;
  std::int64_t row_tasks_ = 0;  // parts into which the rows are cut
  HostBuffer padding_;          // a pixel
};

}  // namespace pipit
