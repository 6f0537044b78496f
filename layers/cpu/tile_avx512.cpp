// AVX-512: 14 pixels by 32 outputs, 28 sums in 32 registers.
#include "layers/cpu/tile_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), \
                             apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+v"(x))

namespace pipit {

namespace {

#include "layers/cpu/tile_kernel.inc"

// Lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __mmask16 lanes_of(const TileCall& call, int vector) {
  const int left = call.columns - 16 * vector;
  return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
}

struct F32 {
  using Vector = float __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kGroup = 7;

  PIPIT_TILE_INLINE Vector zero() { return _mm512_setzero_ps(); }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(a));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return _mm512_load_ps(b); }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c) {
    const __mmask16 lanes = lanes_of(call, vector);
    if (call.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, call.bias + 16 * vector));
    }
    if (residual != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, residual + 64 * vector));
    // In this order a NaN passes.
    sum = _mm512_max_ps(_mm512_set1_ps(call.low), sum);
    sum = _mm512_min_ps(_mm512_set1_ps(call.high), sum);
    _mm512_mask_storeu_ps(c + 64 * vector, lanes, sum);
  }
};

}  // namespace

const TileKernels f32_tiles_avx512 = PIPIT_TILE_KERNELS(F32, Isa::avx512);

}  // namespace pipit

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
