// AVX2 and FMA: 6 rows by 16 columns, 12 sums in 16 registers.
#include "layers/cpu/linear/gemm_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace pipit::internal {

namespace {

#include "layers/cpu/linear/gemm_kernel.h"

struct Floats {
  using Vector = float __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;

  PIPIT_GEMM_INLINE Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  PIPIT_GEMM_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  PIPIT_GEMM_INLINE __m256i mask(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  PIPIT_GEMM_INLINE Vector load(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  PIPIT_GEMM_INLINE void store(float* p, Vector v, std::int64_t n) { _mm256_maskstore_ps(p, mask(n), v); }
};

}  // namespace

const GemmIsa gemm_avx2 = {"avx2", pack<Floats>, accumulate<Floats>, accumulate_unpacked<Floats>};

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
