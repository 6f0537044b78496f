// How "pooled_stem" computes a first convolution and the maximum after it: which warps wait for which rows, and what
// lies where in shared memory. No CUDA: tested without a GPU.
//
// A worker, which is a block of threads, goes through steps of up to two rows of the maximum, image by image. For each
// step some warps bring the rows of the image that are new into a ring of rows, four channels a pixel; others compute
// the rows of the convolution that are new into a second ring; and others take the maxima from there. Each may be a
// step ahead of the next ones. An image of bytes (NormalizeImage) goes through a table while it is copied into the
// ring. Where there are two multiprocessors for every row, or more, workers share the rows, and each has a part of the
// columns. The first rows of the image's ring are repeated after its end, so that the rows of every window follow each
// other.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/device/fast_division.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kPooledStemTaps = 7;      ///< rows of the window
inline constexpr int kPooledStemPixels = 8;    ///< of a row of the window, the last ones with weights of zero
inline constexpr int kPooledStemChannels = 4;  ///< of a pixel, likewise
inline constexpr int kPooledStemUnits = 4;     ///< of the depth: two rows of the window each
inline constexpr int kPooledStemGroups = 4;    ///< of four warps that multiply
inline constexpr int kPooledStemMaxShared =
    225 << 10;  ///< bytes that a block of threads may take on Hopper, but 2 KiB

inline constexpr int kPooledStemTableBytes = kPooledStemChannels * 256 * 4;

/// A convolution of up to four channels to 64, 7 x up to 8, and a 3x3 maximum of stride 2 after it.
struct PooledStemShape {
  int element_bytes = 2;
  int images = 1, channels = 3, in_h = 0, in_w = 0;
  int stride_h = 2, stride_w = 2, pad_h = 3, pad_w = 3;
  int mid_h = 0, mid_w = 0;  ///< of the convolution's output
  int pool_pad_h = 1, pool_pad_w = 1;
  int out_h = 0, out_w = 0;
  bool from_bytes = false;  ///< the image is bytes, and a table says what each is in a channel
  bool bf16 = false;        ///< of 2 bytes: else halves
};

/// Rows from `begin` up to `end`, which is excluded.
struct RowRange {
  int begin = 0, end = 0;
};

/// Columns that a worker computes.
struct StemPart {
  int out_begin = 0, out_columns = 0;  ///< of the maximum
  int mid_begin = 0;                   ///< of the convolution, as many as every part has
  int pixel = 0;  ///< the first one of the image in shared memory: a multiple of four, below 0 in the padding
  int lead = 0;   ///< pixels before the first one that a window has
};

struct PooledStemPlan {
  PooledStemShape shape;
  int step_rows = 2;    ///< of the maximum
  int steps = 1;        ///< of an image
  int parts = 1;        ///< of the columns, each with workers of its own
  int out_columns = 0;  ///< of a part, of the maximum; the last one may have fewer
  int mid_columns = 0;  ///< of a part, of the convolution; neighbours may have some in common
  int mid_pitch = 0;    ///< of the ring's rows: a multiple of eight, so that all are swizzled alike
  int pitch = 0;        ///< pixels of a part's row of the image in shared memory, a multiple of four
  int image_rows = 0, mid_rows = 0;  ///< of the rings
  int ring = 0, pixels = 0;          ///< offsets in shared memory, in bytes; weights begin at 0
  int table = 0;                     ///< likewise, with from_bytes: of kPooledStemTableBytes
  int shared_bytes = 0;

  /// The rows of the convolution that a step's maxima read.
  PIPIT_HOST_DEVICE RowRange mid_of(int step) const {
    const int first = step * step_rows;
    const int last = (first + step_rows < shape.out_h ? first + step_rows : shape.out_h) - 1;
    const int begin = 2 * first - shape.pool_pad_h, end = 2 * last - shape.pool_pad_h + 3;
    return {begin > 0 ? begin : 0, end < shape.mid_h ? end : shape.mid_h};
  }
  /// The rows of the image, from the first one of padding on, that these rows of the convolution read.
  PIPIT_HOST_DEVICE RowRange image_of(RowRange mid) const {
    return {mid.begin * shape.stride_h, (mid.end - 1) * shape.stride_h + kPooledStemTaps};
  }
  PIPIT_HOST_DEVICE StemPart part_of(int part) const {
    const int begin = part * out_columns, left = shape.out_w - begin;
    const int wanted = 2 * begin - shape.pool_pad_w, last = shape.mid_w - mid_columns;
    const int mid = wanted < 0 ? 0 : wanted < last ? wanted : last;
    const int first = mid * shape.stride_w - shape.pad_w;
    const int lead = first & 3;  // of a negative one, too
    return {begin, out_columns < left ? out_columns : left, mid, first - lead, lead};
  }
  /// Rows of the image's ring, with those that lie there twice.
  PIPIT_HOST_DEVICE int stored_rows() const { return image_rows + kPooledStemTaps - 1; }
  /// Runs of `count` neighbouring pixels, 1 or 4, of those that a row of the image is cut into, that hold a part's.
  PIPIT_HOST_DEVICE int runs_of(int count) const {
    const int all = shape.in_w / count, most = pitch / count;
    return all < most ? all : most;
  }
  /// The first of a part's pixels and of the runs that hold them.
  PIPIT_HOST_DEVICE int first_read(const StemPart& part, int count) const {
    const int wanted = part.pixel < 0 ? 0 : part.pixel, last = (shape.in_w / count - runs_of(count)) * count;
    return wanted < last ? wanted : last;
  }
  /// What is left of `rows` where those before `before` are there already.
  static PIPIT_HOST_DEVICE RowRange from(RowRange rows, int before) {
    return {rows.begin > before ? rows.begin : before, rows.end};
  }
};

/// workers: blocks that there are at once. The reason where there is no plan.
inline std::variant<PooledStemPlan, std::string> plan_pooled_stem(const PooledStemShape& shape, int workers) {
  if (shape.stride_h > 4 || shape.stride_w > 4) return "the convolution's stride is larger than 4";
  if (shape.pool_pad_h > 1 || shape.pool_pad_w > 1) return "the maximum's padding is larger than 1";
  PooledStemPlan plan;
  plan.shape = shape;
  // At least the middle of the last maxima must be there.
  if (2 * (shape.out_h - 1) - shape.pool_pad_h >= shape.mid_h ||
      2 * (shape.out_w - 1) - shape.pool_pad_w >= shape.mid_w)
    return "a window of the maximum lies in the padding";
  // Small batches: as many workers as there are rows.
  plan.step_rows = std::int64_t{shape.images} * shape.out_h <= 2 * workers ? 1 : 2;
  plan.steps = (shape.out_h + plan.step_rows - 1) / plan.step_rows;
  // Smaller ones: rows are shared, too, down to a few columns.
  constexpr int kMinColumns = 4;
  const std::int64_t for_a_row = workers / (std::int64_t{shape.images} * plan.steps);
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(for_a_row, 1, std::max(shape.out_w / kMinColumns, 1)));
  plan.out_columns = (shape.out_w + most - 1) / most;
  plan.parts = (shape.out_w + plan.out_columns - 1) / plan.out_columns;
  plan.mid_columns = std::min(2 * (plan.out_columns - 1) + 3, shape.mid_w);
  const auto rounded = [](std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; };
  plan.mid_pitch = static_cast<int>(rounded(plan.mid_columns, 8));
  // Up to three pixels before those that windows have.
  plan.pitch = static_cast<int>(rounded((plan.mid_columns - 1) * shape.stride_w + kPooledStemPixels + 3, 4));
  // A step's own rows, and those that the next one adds meanwhile: two of the convolution for one of the maximum.
  const int added = 2 * plan.step_rows;
  plan.mid_rows = 2 * (plan.step_rows - 1) + 3 + added;
  // The convolution's rows of a first step, with what they read; then those of the step after it.
  plan.image_rows =
      (2 * (plan.step_rows - 1) + 2) * shape.stride_h + kPooledStemTaps + added * shape.stride_h;
  const std::int64_t row_bytes = std::int64_t{kUnitChannels} * shape.element_bytes;
  const std::int64_t ring = kPooledStemUnits * kUnitRows * row_bytes;
  const std::int64_t pixels = ring + rounded(row_bytes * plan.mid_rows * plan.mid_pitch, 1024);
  const std::int64_t pixel_bytes =
      std::int64_t{plan.stored_rows()} * plan.pitch * kPooledStemChannels * shape.element_bytes;
  const std::int64_t table = pixels + pixel_bytes;
  const std::int64_t all = shape.from_bytes ? table + kPooledStemTableBytes : pixels + pixel_bytes;
  if (all > kPooledStemMaxShared) return "shared memory has no room for the rows";
  plan.ring = static_cast<int>(ring), plan.pixels = static_cast<int>(pixels);
  plan.table = shape.from_bytes ? static_cast<int>(table) : 0;
  plan.shared_bytes = static_cast<int>(all);
  return plan;
}

/// Weights [64][7][kernel_w][channels] of elements to kPooledStemUnits units (unit_layout.h): of row r of the window
/// the unit r / 2 has its pixels and their channels from k = r % 2 * 32 on.
inline void pack_pooled_stem(const PooledStemShape& shape, int kernel_w, const std::byte* weights,
                             std::byte* to) {
  const auto bytes = static_cast<std::size_t>(shape.element_bytes);
  constexpr int kDepth = kPooledStemUnits * kUnitChannels;
  std::vector<std::byte> rows(kUnitChannels * kDepth * bytes);  // [64][kDepth]
  for (int o = 0; o < kUnitChannels; ++o) {
    for (int y = 0; y < kPooledStemTaps; ++y) {
      for (int x = 0; x < kernel_w; ++x) {
        const int from = ((o * kPooledStemTaps + y) * kernel_w + x) * shape.channels;
        const int k = (y * kPooledStemPixels + x) * kPooledStemChannels;
        std::memcpy(rows.data() + static_cast<std::size_t>(o * kDepth + k) * bytes,
                    weights + static_cast<std::size_t>(from) * bytes,
                    static_cast<std::size_t>(shape.channels) * bytes);
      }
    }
  }
  for (int unit = 0; unit < kPooledStemUnits; ++unit)
    pack_unit(rows.data(), kDepth, 1, 0, unit * kUnitChannels, 0, true, shape.element_bytes,
              to + static_cast<std::size_t>(unit * kUnitRows * kUnitChannels) * bytes);
}

// What the candidate "pooled_stem" asks of its kernels.

struct PooledStemArgs {
  PooledStemPlan plan;
  const float* x = nullptr;  ///< null: the image is bytes
  const std::uint8_t* bytes =
      nullptr;                   ///< of image 0, row 0, pixel 0 what channel 0 of the convolution is made of
  const float* table = nullptr;  ///< [channels][256]: what the bytes stand for
  int x_image = 0, x_channel = 0, x_row = 0, x_pixel = 0;  ///< strides of x or bytes in elements
  ImageScale x_scale;                                      ///< INT8
  const std::byte* weights = nullptr;                      ///< pack_pooled_stem
  const std::byte* constants = nullptr;  ///< biases, in INT8 then multipliers: pack_unit_constants
  std::byte* y = nullptr;                ///< [images, out_h, out_w, 64]
  PairBounds bounds;
  int workers = 1;      ///< of every part
  int least_steps = 0;  ///< of every worker; the first more_steps have one more
  int more_steps = 0;
  /// Four neighbouring pixels are read at once: of a channel, which lie together on 16 bytes, or of three channels of
  /// bytes, on 4.
  bool runs_of_four = false;
  Divisor runs;  ///< of a part's row of the image: PooledStemPlan::runs_of
  Divisor steps, mid_row, mid_ring, image_ring;
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_pooled_stem(const PooledStemShape& shape);
/// After prepare_pooled_stem: launches only.
cudaError_t launch_pooled_stem(const PooledStemArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
