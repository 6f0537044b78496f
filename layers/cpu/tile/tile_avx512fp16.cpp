// AVX512-FP16: 14 pixels by 32 outputs of two products each, 28 sums of halves in 32 registers.
#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_FP16
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512fp16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512fp16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+v"(x))

namespace pipit::internal {

namespace {

#include "layers/cpu/tile/tile_kernel_body.h"

// Lane 2 i holds output i's products of even K, lane 2 i + 1 those of odd K. In a panel of two vectors output i is
// number i / 2 of vector i % 2, so that both, added up, make one register of 32 outputs in their order.
struct F16 {
  using Vector = int __attribute__((vector_size(64)));  // as in tile_avx512.cpp: others stay in memory
  static constexpr int kLanes = 16;
  static constexpr int kStep = 2;
  static constexpr int kStrip = 7;
  static constexpr int kStretch = kHalfStretch;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    int value;
    std::memcpy(&value, a, sizeof value);
    return reinterpret_cast<Vector>(_mm512_set1_epi32(value));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return reinterpret_cast<Vector>(_mm512_load_si512(b)); }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_fmadd_ph(
        reinterpret_cast<__m512h>(a), reinterpret_cast<__m512h>(b), reinterpret_cast<__m512h>(sum)));
  }

  template <bool First>
  PIPIT_TILE_INLINE void add_total(__m256i halves, float* total) {
    __m512 value = _mm512_cvtph_ps(halves);
    if constexpr (!First) value = _mm512_add_ps(value, _mm512_load_ps(total));
    _mm512_store_ps(total, value);
  }
  template <int Vectors, bool First>
  PIPIT_TILE_INLINE void add_stretch(Vector* sums, float* totals) {
    const auto v0 = reinterpret_cast<__m512i>(sums[0]);
    if constexpr (Vectors == 2) {
      constexpr __mmask32 kOdd = 0xAAAAAAAA;
      const auto v1 = reinterpret_cast<__m512i>(sums[1]);
      const __m512i even_odd = _mm512_mask_blend_epi16(kOdd, v0, v1);
      const __m512i odd_even = _mm512_rol_epi32(_mm512_mask_blend_epi16(kOdd, v1, v0), 16);
      const __m512i sum = _mm512_castph_si512(
          _mm512_add_ph(reinterpret_cast<__m512h>(even_odd), reinterpret_cast<__m512h>(odd_even)));
      // Through memory: converting what is loaded takes one operation, converting a register two, and one to get at
      // its upper part.
      alignas(64) __m256i parts[2];
      _mm512_store_si512(parts, sum);
      __asm__ volatile("" : "+m"(parts));
      add_total<First>(parts[0], totals);
      add_total<First>(parts[1], totals + 16);
      sums[1] = zero();
    } else {
      const __m512h sum =
          _mm512_add_ph(reinterpret_cast<__m512h>(v0), reinterpret_cast<__m512h>(_mm512_rol_epi32(v0, 16)));
      add_total<First>(_mm512_cvtepi32_epi16(_mm512_castph_si512(sum)), totals);
    }
    sums[0] = zero();
  }

  PIPIT_TILE_INLINE Vector start(const TileCall& /*call*/, int /*vector*/) { return zero(); }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(const float* total, const TileCall& call, int vector,
                                const std::byte* residual, std::byte* c, const float* /*scale*/) {
    const int left = call.columns - 16 * vector;
    const auto lanes =
        Whole || left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
    const __m512 bias =
        call.bias != nullptr ? _mm512_maskz_loadu_ps(lanes, call.bias + 16 * vector) : _mm512_setzero_ps();
    // Multipliers are powers of two: what is added is the product itself, unless that overflows.
    __m512 x = _mm512_fmadd_ps(_mm512_load_ps(total),
                               _mm512_maskz_loadu_ps(lanes, call.multiplier + 16 * vector), bias);
    if (residual != nullptr) {
      x = _mm512_add_ps(x, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, residual + 32 * vector)));
    }
    // In this order a NaN passes.
    x = _mm512_max_ps(_mm512_set1_ps(call.low), x);
    x = _mm512_min_ps(_mm512_set1_ps(call.high), x);
    if (call.output_type == TileType::f32) {
      _mm512_mask_storeu_ps(c + 64 * vector, lanes, x);
    } else {
      _mm256_mask_storeu_epi16(c + 32 * vector, lanes,
                               _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
  }
};

}  // namespace

const TileKernels f16_tiles_avx512fp16 = PIPIT_TILE_KERNELS(F16, Isa::avx512fp16);

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
