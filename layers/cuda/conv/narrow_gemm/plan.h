// How "narrow_gemm" multiplies a 1x1 convolution of few channels, or a small window of the user's image, and in which
// order its weights lie. No CUDA: tested without a GPU.
//
// Every warp computes rows of y by itself, 16 positions of a product (m16n8k32) or two of them at a time, straight from
// x and to y: no barrier, no pixel in shared memory. All weights lie there, in the order in which lanes read them, with
// the constants of their columns. Which column of y is which of a product is chosen so that a lane has neighbouring
// channels, and k is cut so that it reads neighbouring bytes of x: of every 32, lane q of four has those from 8 q on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kNarrowStepBytes = 32;       ///< of k, in a product
inline constexpr int kNarrowMaxChannels = 192;    ///< of x: six products deep
inline constexpr int kNarrowPairColumns = 16;     ///< of two products that share their left operands
inline constexpr int kNarrowConstantBytes = 192;  ///< of a pair
inline constexpr int kNarrowMaxShared = 40 << 10;
inline constexpr int kNarrowWindow = 3;          ///< rows and columns of a window at most
inline constexpr int kNarrowWindowChannels = 4;  ///< at most, of an image
inline constexpr int kNarrowWindowBytes = 64;    ///< of k: two products

struct NarrowShape {
  int channels = 0, outputs = 0;  ///< multiples of eight

  /// Products along k, as many as one of the kernels has; what is too much is multiplied by zero.
  PIPIT_HOST_DEVICE int steps() const {
    const int least = (channels + kNarrowStepBytes - 1) / kNarrowStepBytes;
    return least <= 3 ? least : 6;
  }
  /// A pair: sums begin with [4 lanes][bias of columns 0 and 1, twice] of its first product and of its second, then
  /// [4 lanes][multiplier of columns 0, 1 of both], then right operands [steps][32 lanes][16].
  PIPIT_HOST_DEVICE int pair_bytes() const { return kNarrowConstantBytes + steps() * 512; }
  /// Pairs that are computed together from this column on, 1, 2 or 4: a lane writes four times as many bytes at once.
  PIPIT_HOST_DEVICE int pairs_from(int column) const {
    const int left = outputs - column;
    return left >= 64 && outputs % 16 == 0 ? 4 : left > kNarrowPairColumns ? 2 : 1;
  }
  int pairs() const {
    int count = 0;
    for (int column = 0; column < outputs;) {
      const int pairs = pairs_from(column);
      count += pairs, column += pairs * kNarrowPairColumns;
    }
    return count;
  }
  int shared_bytes() const { return pairs() * pair_bytes(); }
};

/// Channel of y that a pair's column is: `pair` of `pairs` together from `first` on, product 0 or 1, column 0 to 7. May
/// lie after the last one.
constexpr int narrow_channel(int first, int pairs, int pair, int product, int column) {
  return first + column / 2 * (4 * pairs) + pair * 4 + product * 2 + column % 2;
}
/// Byte of x's channels that k is, of a step's 32.
constexpr int narrow_byte(int k) {
  return k % 16 / 4 * 8 + k / 16 * 4 + k % 4;
}

/// The byte of k that a window's value is: row r of it is lane r's of four, which has pixels 0 and 1 in the first
/// product and pixel 2 in the second, four channels each.
constexpr int narrow_window_byte(int row, int column, int channel) {
  return column / 2 * kNarrowStepBytes + row * 8 + column % 2 * 4 + channel;
}

/// weights [outputs, channels, height, width] of a window to [outputs, kNarrowWindowBytes].
inline std::vector<std::int8_t> narrow_window_weights(std::span<const std::int8_t> weights, int outputs,
                                                      int channels, int height, int width) {
  std::vector<std::int8_t> rows(static_cast<std::size_t>(outputs * kNarrowWindowBytes));
  auto from = weights.begin();
  for (int o = 0; o < outputs; ++o) {
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x)
          rows[static_cast<std::size_t>(o * kNarrowWindowBytes + narrow_window_byte(y, x, c))] = *from++;
      }
    }
  }
  return rows;
}

/// weights [outputs, channels], a bias (with what sums begin with) and a multiplier for each output.
inline std::vector<std::byte> pack_narrow(const NarrowShape& shape, std::span<const std::int8_t> weights,
                                          std::span<const std::int32_t> bias,
                                          std::span<const float> multipliers) {
  std::vector<std::byte> packed(static_cast<std::size_t>(shape.shared_bytes()));
  std::byte* to = packed.data();
  const auto put = [](std::byte* at, const void* value) { std::memcpy(at, value, 4); };
  for (int first = 0; first < shape.outputs;) {
    const int pairs = shape.pairs_from(first);
    for (int pair = 0; pair < pairs; ++pair, to += shape.pair_bytes()) {
      for (int product = 0; product < 2; ++product) {
        for (int column = 0; column < 8; ++column) {
          const int channel = narrow_channel(first, pairs, pair, product, column);
          if (channel >= shape.outputs) continue;
          const auto c = static_cast<std::size_t>(channel);
          const int lane = column / 2, which = column % 2;
          put(to + product * 64 + lane * 16 + which * 4, &bias[c]);
          put(to + product * 64 + lane * 16 + which * 4 + 8, &bias[c]);
          put(to + 128 + lane * 16 + product * 8 + which * 4, &multipliers[c]);
          for (int k = 0; k < shape.steps() * kNarrowStepBytes; ++k) {
            const int byte = k / kNarrowStepBytes * kNarrowStepBytes + narrow_byte(k % kNarrowStepBytes);
            if (byte >= shape.channels) continue;
            // m16n8k32's right operand: lane 4 column + k % 16 / 4 has four of k, and as many from 16 on.
            const int of_step = k % kNarrowStepBytes, reader = column * 4 + of_step % 16 / 4;
            to[kNarrowConstantBytes + (k / kNarrowStepBytes * 32 + reader) * 16 + product * 8 +
               of_step / 16 * 4 + of_step % 4] =
                static_cast<std::byte>(
                    weights[c * static_cast<std::size_t>(shape.channels) + static_cast<std::size_t>(byte)]);
          }
        }
      }
    }
    first += pairs * kNarrowPairColumns;
  }
  return packed;
}

// What the candidate "narrow_gemm" of QConv asks of its kernels.

/// What x is: rows of bytes, or the user's image, of which windows are read.
enum class NarrowFrom : std::uint8_t { bytes, window };

/// Where a window of the user's image lies: up to three rows, three columns and four channels.
struct NarrowWindow {
  const float* x = nullptr;
  int channels = 0, in_h = 0, in_w = 0;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  int x_image = 0, x_channel = 0, x_row = 0, x_pixel = 0;  ///< strides in elements
  Divisor positions, out_width;                            ///< out_h * out_w, out_w
  ImageScale scale;
};

struct NarrowArgs {
  NarrowShape shape;  ///< of a window: kNarrowWindowBytes for channels
  NarrowFrom from = NarrowFrom::bytes;
  bool adds = false;  ///< a residual
  NarrowWindow window;
  int positions = 0;                      ///< rows of x and y
  int packed_bytes = 0;                   ///< NarrowShape::shared_bytes
  const std::int8_t* x = nullptr;         ///< [positions, channels], 8-byte aligned
  const std::byte* packed = nullptr;      ///< pack_narrow; biases with kMagicBits
  const std::uint8_t* table = nullptr;    ///< what y's bytes become (QUnary), or null; not with a residual
  const std::int8_t* residual = nullptr;  ///< like y, or null
  std::int8_t* y = nullptr;               ///< [positions, outputs], 16-byte aligned
  float residual_scale = 0;               ///< in steps of y
  PairBounds bounds;
  bool relu = false;  ///< the lower bound is 0
};

/// Blocks that the current GPU runs at once, of the kernel for these arguments; whether its launches may overlap.
cudaError_t prepare_narrow_gemm(const NarrowArgs& args, int& blocks, bool& overlap);
cudaError_t launch_narrow_gemm(const NarrowArgs& args, int blocks, bool overlap, cudaStream_t stream);

}  // namespace pipit::internal::cuda
