#include "engine/platform/isa_build.h"
#include "layers/cpu/quantized/winograd_int8.h"

#if PIPIT_ISA_X86
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define PIPIT_BYTES __attribute__((always_inline)) static inline

namespace pipit::internal {

namespace {

using Words = unsigned short __attribute__((vector_size(32)));
using Ints = unsigned __attribute__((vector_size(32)));

using InputChannels = std::int64_t;

template <bool Whole>
PIPIT_BYTES Words widen(const std::uint8_t* from, InputChannels channels) {
  alignas(16) std::uint8_t bytes[16] = {};
  std::memcpy(bytes, from, Whole ? sizeof(bytes) : static_cast<std::size_t>(channels));
  return reinterpret_cast<Words>(
      _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes))));
}

#include "layers/cpu/quantized/winograd_int8_kernel.h"

constexpr std::int64_t kInputChannels = 16;  // at a time
constexpr std::int64_t kOutputChannels = 8;

template <typename Outputs>
__attribute__((noinline)) void transform_inputs(const ByteImage& image, std::int64_t row, std::int64_t column,
                                                Outputs rows, Outputs columns, std::byte* v,
                                                std::int64_t plane) {
  const InputTile<Outputs> tile(image, row, column, rows, columns);
  const std::int64_t corner = (row * image.width + column) * image.channels;
  std::int64_t c = 0;
  for (; c + kInputChannels <= image.channels; c += kInputChannels)
    input_channels<true>(image, corner + c, tile, 0, v + 2 * c, plane);
  if (c < image.channels)
    input_channels<false>(image, corner + c, tile, image.channels - c, v + 2 * c, plane);
}

void input_tile(const ByteImage& image, std::int64_t row, std::int64_t column, std::int64_t rows,
                std::int64_t columns, std::byte* v, std::int64_t plane) {
  if (rows == m && columns == m) return transform_inputs(image, row, column, All{}, All{}, v, plane);
  transform_inputs(image, row, column, rows, columns, v, plane);
}

// What the outputs of a tile share, for some channels.
struct Finish {
  __m256i bias;
  __m256 multiplier;
  std::int64_t channels;
};

// The outputs of a row, requantized: 8 bytes of channels each.
template <int Columns, bool Whole>
PIPIT_BYTES __m256i finish_row(const Ints* sums, const ByteOutput& o, std::int64_t row, std::int64_t c,
                               const Finish& f) {
  __m256i steps[m] = {};
#pragma GCC unroll 4
  for (int j = 0; j < Columns; ++j) {
    // 576 y to y: 954437177 * 9 = 1 modulo 2^32, then 64 y to y.
    const __m256i y = _mm256_srai_epi32(reinterpret_cast<__m256i>(sums[j] * 954437177U), 6);
    __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(y, f.bias)), f.multiplier);
    if (o.residual != nullptr) {
      const std::uint8_t* from = o.residual + row * o.residual_row_step + j * o.residual_pixel_step + c;
      long long eight = 0;
      std::memcpy(&eight, from, Whole ? std::size_t{kOutputChannels} : static_cast<std::size_t>(f.channels));
      const __m256i r = _mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight)),
                                         _mm256_set1_epi32(o.residual_zero_point));
      x = _mm256_add_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(r), _mm256_set1_ps(o.residual_scale)));
    }
    // Rounding is monotone, so the lower bound may come after it; beyond 2^31 there is no conversion. NaN becomes the
    // lower bound.
    steps[j] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_set1_ps(o.bounds.high), x));
  }
  const __m256i zero_point = _mm256_set1_epi16(static_cast<short>(o.zero_point));
  const __m256i low_half = _mm256_adds_epi16(_mm256_packs_epi32(steps[0], steps[1]), zero_point);
  const __m256i high_half = _mm256_adds_epi16(_mm256_packs_epi32(steps[2], steps[3]), zero_point);
  const int low = _mm_cvtss_si32(_mm_set_ss(o.bounds.low)) + o.zero_point;
  const __m256i bytes =
      _mm256_max_epu8(_mm256_packus_epi16(low_half, high_half), _mm256_set1_epi8(static_cast<char>(low)));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Along the rows, to y.
template <int Columns, bool Whole, typename Outputs>
PIPIT_BYTES void output_rows(const Ints* half, const ByteOutput& o, Outputs rows, std::int64_t c,
                             const Finish& finish) {
  const std::size_t stored = Whole ? std::size_t{kOutputChannels} : static_cast<std::size_t>(finish.channels);
  const std::int64_t count = rows;
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < count; ++i) {
    Ints sums[Columns];
    transform_output<Columns>(half + i * n, sums);
    alignas(32) std::uint8_t pixels[m][kOutputChannels];
    _mm256_store_si256(reinterpret_cast<__m256i*>(pixels), finish_row<Columns, Whole>(sums, o, i, c, finish));
    std::uint8_t* y = o.y + i * o.row_step + c;
    for (std::int64_t j = 0; j < Columns; ++j) std::memcpy(y + j * o.pixel_step, pixels[j], stored);
  }
}

template <bool Whole, typename Outputs>
PIPIT_BYTES void output_channels(const std::byte* products, std::int64_t plane, const ByteOutput& o,
                                 Outputs rows, Outputs columns, std::int64_t c, std::int64_t channels) {
  Ints half[m * n];
  with_outputs(rows, [&](auto down) { output_columns<down>(products + 4 * c, plane, columns, half); });
  const __m256i lanes = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(channels)),
                                           _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const Finish finish{_mm256_maskload_epi32(o.bias + c, lanes), _mm256_maskload_ps(o.multiplier + c, lanes),
                      channels};
  with_outputs(columns, [&](auto along) { output_rows<along, Whole>(half, o, rows, c, finish); });
}

template <typename Outputs>
__attribute__((noinline)) void transform_outputs(const std::byte* products, std::int64_t plane,
                                                 const ByteOutput& output, Outputs rows, Outputs columns) {
  const ByteOutput o = output;  // which no store can change
  std::int64_t c = 0;
  for (; c + kOutputChannels <= o.channels; c += kOutputChannels)
    output_channels<true>(products, plane, o, rows, columns, c, kOutputChannels);
  if (c < o.channels) output_channels<false>(products, plane, o, rows, columns, c, o.channels - c);
}

void output_tile(const std::byte* products, std::int64_t plane, const ByteOutput& output) {
  if (output.rows == m && output.columns == m)
    return transform_outputs(products, plane, output, All{}, All{});
  transform_outputs(products, plane, output, output.rows, output.columns);
}

}  // namespace

const ByteWinograd byte_winograd_avx2{input_tile, output_tile};

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
