#include <utility>

#include "engine/platform/isa_build.h"
#include "layers/cpu/quantized/depthwise_quads.h"

#if PIPIT_ISA_X86
#include <immintrin.h>

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
#define PIPIT_QUADS __attribute__((always_inline)) static inline

namespace pipit::internal {

namespace {

#include "layers/cpu/vector/requantize_avx512.h"

// Not __m512i: GCC 12 keeps an array of those in memory.
using Vector = int __attribute__((vector_size(64)));

PIPIT_QUADS __m512i raw(Vector v) {
  return reinterpret_cast<__m512i>(v);
}
PIPIT_QUADS Vector ints(__m512i v) {
  return reinterpret_cast<Vector>(v);
}

// What every output of a block of channels needs.
struct Block {
  std::int64_t channel;
  __mmask64 channels;  // that exist, unless all do
  const std::int8_t* weights;
  const std::int32_t* bias;
  const float* multiplier;
  ByteBounds bounds;
  __m512i turned;
};

// Requantizes and stores one pixel. Its sums are interleaved as the packing expects them.
template <bool Whole>
PIPIT_QUADS void finish(const Block& block, const Vector* sums, std::uint8_t* y) {
  __m512i steps[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 x =
        _mm512_mul_ps(_mm512_cvtepi32_ps(raw(sums[j])), _mm512_loadu_ps(block.multiplier + 16 * j));
    steps[j] = round_below(x, block.bounds);
  }
  const __m512i bytes = _mm512_xor_si512(pack_interleaved(steps, block.bounds), block.turned);
  if constexpr (Whole) {
    _mm512_storeu_si512(y, bytes);
  } else {
    _mm512_mask_storeu_epi8(y, block.channels, bytes);
  }
}

// Four pixels below each other, interleaved: vector j, lane l of 16 holds their bytes of channel
// l / 4 * 16 + j * 4 + l % 4.
template <bool Whole>
PIPIT_QUADS void interleave(const std::uint8_t* const* pixels, const Block& block, Vector* x) {
  __m512i row[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const std::uint8_t* from = pixels[r] + block.channel;
    row[r] = Whole ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(block.channels, from);
  }
  const __m512i upper_low = _mm512_unpacklo_epi8(row[0], row[1]);
  const __m512i upper_high = _mm512_unpackhi_epi8(row[0], row[1]);
  const __m512i lower_low = _mm512_unpacklo_epi8(row[2], row[3]);
  const __m512i lower_high = _mm512_unpackhi_epi8(row[2], row[3]);
  x[0] = ints(_mm512_unpacklo_epi16(upper_low, lower_low));
  x[1] = ints(_mm512_unpackhi_epi16(upper_low, lower_low));
  x[2] = ints(_mm512_unpacklo_epi16(upper_high, lower_high));
  x[3] = ints(_mm512_unpackhi_epi16(upper_high, lower_high));
}

// Column P of the input meets the outputs that it belongs to; the output whose last column it is is finished.
template <int Kernel, int Stride, bool Whole, int P>
PIPIT_QUADS void add_column(const QuadTile& t, const Block& block, Vector* sums) {
  constexpr int kQuads = (Kernel + 3) / 4;
#pragma GCC unroll 2
  for (int q = 0; q < kQuads; ++q) {
    Vector x[4];
    interleave<Whole>(t.pixels + (P * kQuads + q) * 4, block, x);
#pragma GCC unroll 8
    for (int k = 0; k < Kernel; ++k) {
      if ((P - k) % Stride != 0 || P < k || (P - k) / Stride >= kQuadTile) continue;
      Vector* sum = sums + (P - k) / Stride * 4;
      const std::int8_t* w = block.weights + (q * Kernel + k) * 4 * kQuadChannels;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        sum[j] = ints(_mm512_dpbusd_epi32(
            raw(k == 0 && q == 0 ? ints(_mm512_loadu_si512(block.bias + 16 * j)) : sum[j]), raw(x[j]),
            _mm512_loadu_si512(w + j * kQuadChannels)));
        // Here and now: the compiler would load weights once for all columns and put products off, and spill both.
        __asm__ volatile("" : "+v"(sum[j]) : : "memory");
      }
    }
  }
  constexpr int kLast = P - (Kernel - 1);
  if constexpr (kLast >= 0 && kLast % Stride == 0 && kLast / Stride < kQuadTile) {
    constexpr int kColumn = kLast / Stride;
    if (kColumn >= t.columns) return;
    std::uint8_t* y = t.y + kColumn * t.y_step + block.channel;
    // The line of the next tile's, as a rule: waiting for another core to give it up takes longer than computing it.
    __asm__ volatile("prefetchw %0" : : "m"(*(y + kQuadTile * t.y_step)));
    finish<Whole>(block, sums + kColumn * 4, y);
  }
}

template <int Kernel, int Stride, bool Whole, int... P>
PIPIT_QUADS void add_columns(const QuadTile& t, const Block& block,
                             std::integer_sequence<int, P...> /*columns*/) {
  Vector sums[4 * kQuadTile];
  (add_column<Kernel, Stride, Whole, P>(t, block, sums), ...);
}

template <int Kernel, int Stride>
void quad_tile(const QuadTile& call) {
  const QuadTile t = call;  // which no store can change
  Block block;
  block.bounds = byte_bounds(t.low, t.high, t.zero_point);
  block.turned = _mm512_set1_epi8(static_cast<char>(t.turned));
  block.weights = t.weights;
  block.bias = t.bias;
  block.multiplier = t.multiplier;
  for (block.channel = 0; block.channel < t.channels; block.channel += kQuadChannels) {
    constexpr auto kColumns = std::make_integer_sequence<int, (kQuadTile - 1) * Stride + Kernel>();
    const std::int64_t left = t.channels - block.channel;
    if (left >= kQuadChannels) {
      add_columns<Kernel, Stride, true>(t, block, kColumns);
    } else {
      block.channels = (__mmask64{1} << left) - 1;
      add_columns<Kernel, Stride, false>(t, block, kColumns);
    }
    block.weights += (Kernel + 3) / 4 * Kernel * 4 * kQuadChannels;
    block.bias += kQuadChannels;
    block.multiplier += kQuadChannels;
  }
}

constexpr QuadKernels kKernels = {{{quad_tile<3, 1>, quad_tile<3, 2>},
                                   {quad_tile<5, 1>, quad_tile<5, 2>},
                                   {quad_tile<7, 1>, quad_tile<7, 2>}}};

}  // namespace

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const pipit::internal::QuadKernels* pipit::internal::quad_kernels(Isa isa) {
#if PIPIT_ISA_X86
  if (isa >= Isa::avx512vnni) return &kKernels;
#endif
  static_cast<void>(isa);
  return nullptr;
}
