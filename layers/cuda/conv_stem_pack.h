// Arguments and weights of the GPU kernel "stem". Plain C++, so that it is tested without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layers/cuda/conv_tile.h"

namespace pipit::cuda {

inline constexpr int kStemRows = 8;      ///< output rows of a block's tile
inline constexpr int kStemColumns = 16;  ///< output columns
inline constexpr int kStemMaxChannels = 4;
/// Most shared memory that a block may take: two of them then fit every GPU's multiprocessor, or nearly.
inline constexpr std::size_t kStemMaxShared = std::size_t{96} << 10;

struct StemArgs {
  ConvShape shape;          ///< in_c: the channels of x, 1 to 4
  const void* x = nullptr;  ///< f16 where x_half, else f32; any layout
  bool x_half = false;
  std::int64_t x_image = 0;  ///< strides of x in elements
  int x_channel = 0, x_row = 0, x_pixel = 0;
  const Half* weights = nullptr;  ///< pack_stem_weights
  const float* bias = nullptr;    ///< one per packed output channel
  Half* y = nullptr;              ///< [batch, out_h, out_w, out_c]
  float low = 0, high = 0;        ///< activation: clamp to [low, high]
  int width = 64;                 ///< output channels of a block: 32 or 64
  int steps = 0;                  ///< of eight taps
  int halo_h = 0, halo_w = 0;     ///< pixels under a tile
  Divisor halo_width;
  int tiles_w = 1, tiles = 1;  ///< side by side; in all images
  Divisor tiles_wide, tiles_per_image;
  int weight_bytes = 0, offset_bytes = 0;  ///< of shared memory
  std::size_t shared_bytes = 0;
};

/// The geometry's part of the arguments. halo_h * halo_w must fit an int; shared_bytes says whether the kernel
/// can run (kStemMaxShared).
StemArgs stem_args(const ConvShape& shape);

/// Where channel `channel` (0 to 3) of tap `tap` lies along k. A lane of a 16 x 16 fragment holds the columns 2 t,
/// 2 t + 1, 2 t + 8 and 2 t + 9: so it gets the four channels of one tap, which lie together in memory.
constexpr int stem_depth(int tap, int channel) {
  return tap / 4 * 16 + tap % 4 * 2 + channel / 2 * 8 + channel % 2;
}

/// Weights [out_c, in_c, kernel_h, kernel_w] in row-major order for blocks of `width` output channels:
/// [block][64 of k][width][64], zeros beyond out_c, the channels and the taps.
std::vector<Half> pack_stem_weights(const StemArgs& args, const float* weights);

/// An INT8 convolution. The tile's steps and pixels are those of `stem`, a pixel is four bytes and eight taps fill 32
/// bytes of k in their order.
struct QStemArgs {
  StemArgs stem;       ///< x_half, weights, bias and y unused; low and high as in StepBounds
  bool x_f32 = false;  ///< x is f32 and becomes i8 while it is staged, else i8
  float x_scale = 1;   ///< for x_f32
  const std::int8_t* weights = nullptr;  ///< pack_qstem_weights
  const std::int32_t* bias = nullptr;    ///< one per packed output channel
  const float* multipliers = nullptr;    ///< likewise
  std::int8_t* y = nullptr;              ///< [batch, out_h, out_w, out_c]
  bool small_sums = false;               ///< no sum reaches kSmallSum (conv_gemm_launch.h) in magnitude
};

/// stem_args() with the sizes of bytes.
StemArgs qstem_args(const ConvShape& shape);

/// Weights [out_c, in_c, kernel_h, kernel_w] in row-major order for blocks of `width` output channels:
/// [block][128 of k][width][128] with k = tap * 4 + channel, rows in the order of packed_channel, zeros beyond out_c, the
/// channels and the taps.
std::vector<std::int8_t> pack_qstem_weights(const StemArgs& args, const std::int8_t* weights);

}  // namespace pipit::cuda
