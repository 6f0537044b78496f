#include "engine/platform/isa_build.h"
#include "layers/cpu/quantized/winograd_int8.h"

#if PIPIT_ISA_X86
#include <immintrin.h>

#include <cstring>
#include <type_traits>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif
#define PIPIT_BYTES __attribute__((always_inline)) static inline

namespace pipit::internal {

namespace {

#include "layers/cpu/vector/requantize_avx512.h"

// Unsigned, so that sums wrap around. Not __m512i: GCC 12 keeps an array of those in memory.
using Words = unsigned short __attribute__((vector_size(64)));
using Ints = unsigned __attribute__((vector_size(64)));

using InputChannels = __mmask32;

template <bool Whole>
PIPIT_BYTES Words widen(const std::uint8_t* from, InputChannels channels) {
  const __m256i bytes = Whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                              : _mm256_maskz_loadu_epi8(channels, from);
  return reinterpret_cast<Words>(_mm512_cvtepu8_epi16(bytes));
}

#include "layers/cpu/quantized/winograd_int8_kernel.h"

template <typename Outputs>
__attribute__((noinline)) void transform_inputs(const ByteImage& image, std::int64_t row, std::int64_t column,
                                                Outputs rows, Outputs columns, std::byte* v,
                                                std::int64_t plane) {
  const InputTile<Outputs> tile(image, row, column, rows, columns);
  const std::int64_t corner = (row * image.width + column) * image.channels;
  std::int64_t c = 0;
  for (; c + 32 <= image.channels; c += 32)
    input_channels<true>(image, corner + c, tile, 0, v + 2 * c, plane);
  if (c < image.channels) {
    const __mmask32 channels = (__mmask32{1} << (image.channels - c)) - 1;
    input_channels<false>(image, corner + c, tile, channels, v + 2 * c, plane);
  }
}

void input_tile(const ByteImage& image, std::int64_t row, std::int64_t column, std::int64_t rows,
                std::int64_t columns, std::byte* v, std::int64_t plane) {
  if (rows == m && columns == m) return transform_inputs(image, row, column, All{}, All{}, v, plane);
  transform_inputs(image, row, column, rows, columns, v, plane);
}

// The outputs of a row, requantized: 16 bytes of channels each.
template <int Columns>
PIPIT_BYTES __m512i finish_row(const Ints* sums, const ByteOutput& o, std::int64_t row, std::int64_t c,
                               __mmask16 channels) {
  const __m512i bias = _mm512_maskz_loadu_epi32(channels, o.bias + c);
  const __m512 multiplier = _mm512_maskz_loadu_ps(channels, o.multiplier + c);
  const ByteBounds bounds = byte_bounds(o.bounds.low, o.bounds.high, o.zero_point);
  __m512i steps[m] = {};
#pragma GCC unroll 4
  for (int j = 0; j < Columns; ++j) {
    // 576 y to y: 954437177 * 9 = 1 modulo 2^32, then 64 y to y.
    const __m512i y = _mm512_srai_epi32(reinterpret_cast<__m512i>(sums[j] * 954437177U), 6);
    __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(y, bias)), multiplier);
    if (o.residual != nullptr) {
      const std::uint8_t* from = o.residual + row * o.residual_row_step + j * o.residual_pixel_step + c;
      const __m512i r = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(channels, from)),
                                         _mm512_set1_epi32(o.residual_zero_point));
      x = _mm512_add_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(r), _mm512_set1_ps(o.residual_scale)));
    }
    steps[j] = round_below(x, bounds);
  }
  return in_order(pack_interleaved(steps, bounds));
}

template <bool Whole>
PIPIT_BYTES void store_pixel(std::uint8_t* y, __m128i bytes, __mmask16 channels) {
  if constexpr (Whole) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), bytes);
  } else {
    _mm_mask_storeu_epi8(y, channels, bytes);
  }
}

// Along the rows, to y.
template <int Columns, bool Whole, typename Outputs>
PIPIT_BYTES void output_rows(const Ints* half, const ByteOutput& o, Outputs rows, std::int64_t c,
                             __mmask16 channels) {
  const std::int64_t count = rows;
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < count; ++i) {
    Ints sums[Columns];
    transform_output<Columns>(half + i * n, sums);
    const __m512i bytes = finish_row<Columns>(sums, o, i, c, channels);
    std::uint8_t* y = o.y + i * o.row_step + c;
    store_pixel<Whole>(y, _mm512_castsi512_si128(bytes), channels);
    if constexpr (Columns > 1)
      store_pixel<Whole>(y + o.pixel_step, _mm512_extracti32x4_epi32(bytes, 1), channels);
    if constexpr (Columns > 2)
      store_pixel<Whole>(y + 2 * o.pixel_step, _mm512_extracti32x4_epi32(bytes, 2), channels);
    if constexpr (Columns > 3)
      store_pixel<Whole>(y + 3 * o.pixel_step, _mm512_extracti32x4_epi32(bytes, 3), channels);
  }
}

template <bool Whole, typename Outputs>
PIPIT_BYTES void output_channels(const std::byte* products, std::int64_t plane, const ByteOutput& o,
                                 Outputs rows, Outputs columns, std::int64_t c, __mmask16 channels) {
  Ints half[m * n];
  with_outputs(rows, [&](auto down) { output_columns<down>(products + 4 * c, plane, columns, half); });
  with_outputs(columns, [&](auto along) { output_rows<along, Whole>(half, o, rows, c, channels); });
}

template <typename Outputs>
__attribute__((noinline)) void transform_outputs(const std::byte* products, std::int64_t plane,
                                                 const ByteOutput& output, Outputs rows, Outputs columns) {
  const ByteOutput o = output;  // which no store can change
  std::int64_t c = 0;
  for (; c + 16 <= o.channels; c += 16) output_channels<true>(products, plane, o, rows, columns, c, 0xFFFF);
  if (c < o.channels) {
    const auto channels = static_cast<__mmask16>((1U << (o.channels - c)) - 1U);
    output_channels<false>(products, plane, o, rows, columns, c, channels);
  }
}

void output_tile(const std::byte* products, std::int64_t plane, const ByteOutput& output) {
  if (output.rows == m && output.columns == m)
    return transform_outputs(products, plane, output, All{}, All{});
  transform_outputs(products, plane, output, output.rows, output.columns);
}

}  // namespace

const ByteWinograd byte_winograd_avx512vnni{input_tile, output_tile};

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
