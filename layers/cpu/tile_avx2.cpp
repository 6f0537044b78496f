// AVX2 and FMA: 6 pixels by 16 outputs, 12 sums in 16 registers.
#include "layers/cpu/tile_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+x"(x))

namespace pipit {

namespace {

#include "layers/cpu/tile_kernel.inc"

// All ones in the lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __m256i lanes_of(const TileCall& call, int vector) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(call.columns - 8 * vector),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct F32 {
  using Vector = float __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kGroup = 3;

  PIPIT_TILE_INLINE Vector zero() { return _mm256_setzero_ps(); }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(a));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) {
    return _mm256_load_ps(reinterpret_cast<const float*>(b));
  }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c) {
    const __m256i lanes = lanes_of(call, vector);
    if (call.bias != nullptr) sum = _mm256_add_ps(sum, _mm256_maskload_ps(call.bias + 8 * vector, lanes));
    if (residual != nullptr) {
      sum = _mm256_add_ps(sum,
                          _mm256_maskload_ps(reinterpret_cast<const float*>(residual) + 8 * vector, lanes));
    }
    // In this order a NaN passes.
    sum = _mm256_max_ps(_mm256_set1_ps(call.low), sum);
    sum = _mm256_min_ps(_mm256_set1_ps(call.high), sum);
    _mm256_maskstore_ps(reinterpret_cast<float*>(c) + 8 * vector, lanes, sum);
  }
};

}  // namespace

const TileKernels f32_tiles_avx2 = PIPIT_TILE_KERNELS(F32, Isa::avx2);

}  // namespace pipit

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
