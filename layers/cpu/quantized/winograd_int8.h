// Winograd's F(4 x 4, 3 x 3) in integers: the exact sums of an INT8 convolution, from 36 products of 16 bits instead
// of 144 of 8 bits.
//
// Row i of G (winograd.h) has the common denominator s_i: 4, 6, 6, 24, 24, 1. Transformed filters without it,
// U = s G g G^T s, are integers of at most 49 * 128 in magnitude, transformed inputs B^T d B of at most 100 * 255, and
// both fit 16 bits. Their products M, summed up over channels, are 576 / (D_i D_j) times too large, D_i = 24 / s_i, so
// that
//   576 y = A^T (D_i D_j M) A.
// All of this is sums and multiples of integers, so it may be done modulo 2^32, however large M is: 576 = 9 * 64, and 9
// has an inverse modulo 2^32, which leaves 64 y. Where |y| < 2^25, a shift brings y back exactly.
//
// A tile at the border may have only e < 4 outputs along an axis. It takes F(e, 3) there, whose points are the
// first e + 1 of 0, 1, -1, 2, -2 and infinity: products with the same transformed filters, but fewer.
#pragma once

#include <cstdint>

#include "engine/platform/isa.h"
#include "layers/ops/clamp.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// A u8 image [height, width, channels]; outside of it everything is the zero point.
struct ByteImage {
  const std::uint8_t* data = nullptr;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  int zero_point = 0;
};

/// Where the outputs of a tile go: `rows` x `columns` of its 4 x 4 exist, at y[row * row_step + column * pixel_step +
/// channel], u8; and what is done with their sums (layers/ops/qconv.h).
struct ByteOutput {
  std::uint8_t* y = nullptr;
  const std::uint8_t* residual = nullptr;  ///< u8, may be null
  std::int64_t row_step = 0;
  std::int64_t pixel_step = 0;
  std::int64_t residual_row_step = 0;
  std::int64_t residual_pixel_step = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 0;
  const std::int32_t* bias = nullptr;  ///< [channels], like multiplier
  const float* multiplier = nullptr;
  StepBounds bounds;
  int zero_point = 0;
  int residual_zero_point = 0;
  float residual_scale = 0;
};

inline constexpr int kByteWinogradOutputs = 4;
inline constexpr int kByteWinogradInputs = 6;
/// Sums must be smaller in magnitude.
inline constexpr std::int64_t kByteWinogradSums = 1 << 25;

/// U of filters g[count][3][3], plane i * 6 + j of filter f at u[(i * 6 + j) * plane + f].
void transform_byte_filters(const std::int8_t* g, std::int64_t count, std::int16_t* u, std::int64_t plane);

/// The transforms of activations; planes are bytes apart.
struct ByteWinograd {
  /// B^T d B for the tile of rows x columns outputs, each 1 to 4, whose first input is (row, column), s16: channel c at
  /// v + 2 * c, in the planes of the points that it takes. Up to 31 elements after the last channel are written too.
  void (*input)(const ByteImage& image, std::int64_t row, std::int64_t column, std::int64_t rows,
                std::int64_t columns, std::byte* v, std::int64_t plane);
  /// Finishes what lies at m, s32, in the planes of those points. Reads up to 15 elements after the last channel.
  void (*output)(const std::byte* m, std::int64_t plane, const ByteOutput& output);
};

/// The transforms of single instruction sets.
extern const ByteWinograd byte_winograd_avx2, byte_winograd_avx512vnni;
/// Null for the baseline; with it come s16_tiles().
const ByteWinograd* byte_winograd(Isa isa = chosen_isa());

}  // namespace pipit::internal
