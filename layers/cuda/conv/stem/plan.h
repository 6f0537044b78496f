// Arguments and weights of the GPU kernels "stem". Plain C++, so that they are tested without CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/device/quantized_types.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kStemColumns = 16;  ///< output columns of a block's tile
inline constexpr int kStemMaxChannels = 32;
inline constexpr int kStemNarrow =
    4;  ///< most channels that are also read from a user's image: f32, any layout
/// Most shared memory that a block may take: two of them then fit every GPU's multiprocessor, or nearly.
inline constexpr std::size_t kStemMaxShared = std::size_t{96} << 10;

/// What a block computes at once: `rows` x kStemColumns positions of `width` output channels.
struct StemTile {
  int rows = 8;    ///< 4 or 8, a warp each
  int width = 64;  ///< 8, 16, 32 or 64
  friend bool operator==(const StemTile&, const StemTile&) = default;
  /// "8x64", by which --autotune and its cache know it.
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(width); }
};

/// How pixels become the left-hand matrix. The pixels under a tile lie in shared memory, where a lane reads a unit at
/// once: `unit_bytes` of neighbouring channels, or for one or two channels of `group` neighbouring taps. Four units, a
/// lane's each, are four times unit_bytes of k: so channels and taps are padded to four units together, not one by one.
struct StemUnits {
  int unit_bytes = 8;  ///< 4 or 8
  int elements = 4;    ///< of a unit
  int group = 1;       ///< taps of a row in a unit: 4 / channels for up to two channels
  int per_pixel = 1;
  int window_w = 1;  ///< units that a row of taps takes per channel unit: ceil(kernel_w / group)
  int count = 1;     ///< of a window: kernel_h * window_w * per_pixel
};

struct StemArgs {
  ConvShape shape;          ///< in_c: the channels of x, 1 to kStemMaxChannels; int8
  const void* x = nullptr;  ///< f32 where x_f32, else f16 or bf16, in INT8 i8; any layout
  bool x_f32 = false;
  ImageScale x_scale;  ///< INT8: of an f32 x, which becomes i8 while it is staged
  int x_image = 0, x_channel = 0, x_row = 0, x_pixel = 0;  ///< strides of x in elements
  int copied_bytes = 0;            ///< that are copied at once, 4, 8 or 16; 0: x is read element by element
  const void* weights = nullptr;   ///< pack_stem_weights, pack_qstem_weights
  const void* bias = nullptr;      ///< one per packed output channel: f32, in INT8 i32
  const void* residual = nullptr;  ///< shaped like y, f16, bf16 or i8; or null
  void* y = nullptr;               ///< [batch, out_h, out_w, out_c]: f16 or bf16, in INT8 as `stored` says
  float low = 0, high = 0;         ///< activation: clamp to [low, high]; for an i8 y its StepBounds
  const float* multipliers = nullptr;   ///< INT8: one per packed output channel
  float residual_scale = 0;             ///< INT8: of the residual, in steps of y
  StoredType stored = StoredType::i8;   ///< INT8: i8, f16 or f32
  const std::uint8_t* table = nullptr;  ///< INT8 in i8: what y's bytes become (QUnary), or null
  PairBounds whole_bounds;              ///< INT8 in i8: low and high as they are rounded
  bool small = false;                   ///< INT8: as ConvGemmArgs has it
  bool overlap = false;                 ///< start while the previous kernel still runs (Hopper and later)

  StemTile tile;
  StemUnits units;
  int pitch = 1;                                      ///< units from one pixel to the next in shared memory
  int steps = 0;                                      ///< of 32 bytes of k
  int halo_h = 0, halo_w = 0;                         ///< pixels under a tile
  std::uint32_t halo_width = 0;                       ///< small_factor(halo_w)
  int parts = 1;                                      ///< of a pixel that are copied or read at once
  std::uint32_t parts_factor = 0;                     ///< small_factor(parts)
  std::uint32_t units_factor = 0, window_factor = 0;  ///< of units.per_pixel and units.window_w
  bool prefetches =
      false;  ///< the next tile's pixels are copied during this one's products: halo_bytes once more
  int tiles_w = 1, tiles = 1;  ///< side by side; in all images
  Divisor tiles_wide, tiles_per_image;
  int weight_bytes = 0, offset_bytes = 0, halo_bytes = 0;  ///< of shared memory; at most what an int holds
  std::size_t shared_bytes = 0;
  HalfFunction function;  ///< fp16 and bf16: of what y would be, after the clamp
};

/// For divisions of small numbers: n / divisor is the upper word of n * factor as long as n * divisor < 2^32. 0 for 1.
constexpr std::uint32_t small_factor(int divisor) {
  return divisor == 1
             ? 0
             : static_cast<std::uint32_t>((std::uint64_t{1} << 32) / static_cast<std::uint64_t>(divisor) + 1);
}

/// Where byte `byte` of unit `unit` of the window lies along k, in bytes. A lane t of a fragment's row holds bytes 4 t
/// to 4 t + 3 and 4 t + 16 to 4 t + 19 of 32: these are the words of its units, in their order.
constexpr int stem_depth(int unit_bytes, int unit, int byte) {
  const int word = unit / 4 * (unit_bytes / 4) + byte / 4;
  return word / 2 * 32 + word % 2 * 16 + unit % 4 * 4 + byte % 4;
}

/// The output channel, within its tile, that a row of the packed weights is for: a lane, which has columns 2 t and
/// 2 t + 1 of every eight, gets neighbouring channels (packed_channel()).
PIPIT_HOST_DEVICE constexpr int stem_channel(int width, int row) {
  if (width == 8) return row;
  if (width == 16) return (row >> 1 & 3) * 4 + (row >> 3 & 1) * 2 + (row & 1);
  return packed_channel(row);
}

/// Values per output channel in the order of those rows, zeros beyond.
template <typename T>
std::vector<T> in_stem_order(const StemArgs& args, std::vector<T> values) {
  const int width = args.tile.width;
  const auto rows = static_cast<std::size_t>(ceil_div(args.shape.out_c, width) * width);
  values.resize(rows);
  std::vector<T> packed(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const int row = static_cast<int>(r) % width;
    packed[r] =
        values[r - static_cast<std::size_t>(row) + static_cast<std::size_t>(stem_channel(width, row))];
  }
  return packed;
}

inline int stem_int(std::int64_t v) {
  return static_cast<int>(v);
}

inline int stem_element_bytes(const ConvShape& shape) {
  return shape.int8 ? 1 : 2;
}

// The fewest units from pixel to pixel for which the four pixels that half a warp reads at once lie in different banks.
// Units of few bytes or few to a pixel overlap, which is no conflict: one read serves both.
inline int stem_pitch(const StemUnits& units, int stride) {
  if (units.unit_bytes != 8 || units.per_pixel < 4) return units.per_pixel;
  int pitch = units.per_pixel + units.per_pixel % 2;  // copies of 16 bytes
  while (stride % 4 != 0 && pitch * stride % 8 != 4) pitch += 2;
  return pitch;
}

// Weights in the order of the kernels. stored: an element as it is kept.
template <typename To, typename From, typename Stored>
std::vector<To> pack_stem(const StemArgs& args, const From* weights, Stored stored) {
  const ConvShape& s = args.shape;
  const StemUnits& u = args.units;
  const int width = args.tile.width;
  const int row_elements = 128 / stem_int(sizeof(To));
  const auto block = static_cast<std::size_t>(args.weight_bytes) / sizeof(To);
  std::vector<To> packed(block * static_cast<std::size_t>(ceil_div(s.out_c, width)));
  for (int place = 0; place < stem_int(ceil_div(s.out_c, width)) * width; ++place) {
    const int o = place / width * width + stem_channel(width, place % width);
    if (o >= s.out_c) continue;
    for (int r = 0; r < s.kernel_h; ++r) {
      for (int w = 0; w < s.kernel_w; ++w) {
        for (int c = 0; c < s.in_c; ++c) {
          const int pixel_unit = (r * u.window_w + w / u.group) * u.per_pixel;
          const int element = w % u.group * s.in_c + c;  // of the pixel's units
          const int k = stem_depth(u.unit_bytes, pixel_unit + element / u.elements,
                                   element % u.elements * stem_int(sizeof(To))) /
                        stem_int(sizeof(To));
          const int row = k / row_elements * width + place % width;
          packed[static_cast<std::size_t>(place / width) * block +
                 static_cast<std::size_t>(row * row_elements + k % row_elements)] =
              stored(
                  weights[((static_cast<std::int64_t>(o) * s.in_c + c) * s.kernel_h + r) * s.kernel_w + w]);
        }
      }
    }
  }
  return packed;
}

inline StemUnits stem_units(const ConvShape& shape) {
  StemUnits u;
  const int bytes = stem_int(ceil_div(std::int64_t{shape.in_c} * stem_element_bytes(shape), 4) * 4);
  u.unit_bytes = bytes % 8 == 0 || !shape.int8 ? 8 : 4;
  u.elements = u.unit_bytes / stem_element_bytes(shape);
  u.group = shape.in_c <= 2 ? 4 / shape.in_c : 1;
  u.per_pixel = stem_int(ceil_div(bytes, u.unit_bytes));
  u.window_w = stem_int(ceil_div(shape.kernel_w, u.group));
  u.count = shape.kernel_h * u.window_w * u.per_pixel;
  return u;
}

/// The geometry's part of the arguments. halo_h * halo_w must fit an int; shared_bytes says whether the kernel
/// can run (kStemMaxShared).
inline StemArgs stem_args(const ConvShape& shape, const StemTile& tile) {
  StemArgs a;
  a.shape = shape;
  a.tile = tile;
  a.units = stem_units(shape);
  const int units_a_step = 32 / a.units.unit_bytes;
  a.steps = stem_int(ceil_div(a.units.count, units_a_step));
  a.pitch = stem_pitch(a.units, shape.stride_w);
  a.halo_h = (tile.rows - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  a.halo_w =
      (kStemColumns - 1) * shape.stride_w + (a.units.window_w - 1) * a.units.group * shape.dilation_w + 1;
  a.halo_width = small_factor(a.halo_w);
  a.units_factor = small_factor(a.units.per_pixel);
  a.window_factor = small_factor(a.units.window_w);
  a.tiles_w = stem_int(ceil_div(shape.out_w, kStemColumns));
  const int per_image = a.tiles_w * stem_int(ceil_div(shape.out_h, tile.rows));
  a.tiles = per_image * shape.batch;
  a.tiles_wide = Divisor(a.tiles_w);
  a.tiles_per_image = Divisor(per_image);
  // In 64 bits: a window of a thousand taps a side has more weights than an int counts.
  const std::int64_t weight_bytes = ceil_div(a.steps, 4) * tile.width * 128;
  const std::int64_t offset_bytes = ceil_div(a.steps, 2) * 2 * units_a_step * (shape.int8 ? 4 : 16);
  const std::int64_t halo_bytes =
      ceil_div(std::int64_t{a.halo_h} * a.halo_w * a.pitch * a.units.unit_bytes, 16) * 16;
  const auto saturated = [](std::int64_t v) {
    return stem_int(std::min<std::int64_t>(v, std::numeric_limits<int>::max()));
  };
  a.weight_bytes = saturated(weight_bytes);
  a.offset_bytes = saturated(offset_bytes);
  a.halo_bytes = saturated(halo_bytes);
  a.shared_bytes = static_cast<std::size_t>(weight_bytes + offset_bytes + halo_bytes);
  return a;
}

/// Output channels of the widest tile that is of use.
inline int widest_stem_tile(const ConvShape& shape) {
  int width = 8;
  while (width < std::min(shape.out_c, 64)) width *= 2;
  return width;
}

/// The tiles that fit the shared memory, first the one that should be fastest on `processors` multiprocessors. Empty
/// where none fits.
inline std::vector<StemTile> stem_tiles(const ConvShape& shape, int processors) {
  std::vector<StemTile> tiles;
  for (int width = widest_stem_tile(shape); width >= 8; width /= 2) {
    for (const int rows : {8, 4}) {
      if (stem_args(shape, {rows, width}).shared_bytes <= kStemMaxShared) tiles.push_back({rows, width});
    }
  }
  // The largest tile with a block for every multiprocessor; where there is none, the one of the most blocks that still
  // computes 16 channels.
  const auto blocks = [&](const StemTile& tile) {
    return stem_args(shape, tile).tiles * ceil_div(shape.out_c, tile.width);
  };
  auto last = std::find_if(tiles.begin(), tiles.end(), [](const StemTile& t) { return t.width < 16; });
  if (last == tiles.begin()) last = tiles.end();
  auto best = std::find_if(tiles.begin(), last, [&](const StemTile& t) { return blocks(t) >= processors; });
  if (best == last && best != tiles.begin()) --best;
  // Where windows overlap, a tile of eight rows reads fewer pixels than two tiles of four. Where two tiles of four read
  // at most a tenth more, the larger number of blocks balances better (as measured on an H100 at batch 128 for first
  // layers of 3x3 with stride 2, 1x1 convolutions of 32 channels to 192, and images of 1x1).
  constexpr double kMaxHaloGrowth = 1.1;
  const StemArgs eight = stem_args(shape, {8, 8}), four = stem_args(shape, {4, 8});
  if (best != tiles.end() && best->rows == 8 && four.halo_h * 2 <= eight.halo_h * kMaxHaloGrowth) ++best;
  if (best != tiles.end()) std::rotate(tiles.begin(), best, best + 1);
  return tiles;
}

/// Weights [out_c, in_c, kernel_h, kernel_w] in row-major order for blocks of tile.width output channels:
/// [block][128 bytes of k][width][128 bytes], rows in the order of stem_channel, zeros beyond out_c and the units'
/// ends.
inline std::vector<std::uint16_t> pack_stem_weights(const StemArgs& args, const float* weights) {
  if (args.shape.bf16)
    return pack_stem<std::uint16_t>(args, weights, [](float w) { return to_bfloat16(w).bits; });
  return pack_stem<std::uint16_t>(args, weights, [](float w) { return to_half(w).bits; });
}

inline std::vector<std::int8_t> pack_qstem_weights(const StemArgs& args, const std::int8_t* weights) {
  return pack_stem<std::int8_t>(args, weights, [](std::int8_t w) { return w; });
}

// What the candidates ask of their kernels (launch.cu).

/// Blocks of the kernel that the current GPU runs at once, and whether its launches may overlap; allows it its shared
/// memory.
cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks, bool& overlap);
/// After prepare_stem: launches only.
cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream);

}  // namespace pipit::internal::cuda
