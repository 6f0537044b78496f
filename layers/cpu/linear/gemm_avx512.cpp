// AVX-512: 8 rows by 48 columns, 24 sums in 32 registers.
#include "layers/cpu/linear/gemm_isa.h"

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

namespace pipit::internal {

namespace {

#include "layers/cpu/linear/gemm_kernel.h"

struct Floats {
  using Vector = float __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kRows = 8;
  static constexpr int kVectors = 3;

  PIPIT_GEMM_INLINE Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  PIPIT_GEMM_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  PIPIT_GEMM_INLINE __mmask16 mask(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }
  PIPIT_GEMM_INLINE Vector load(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  PIPIT_GEMM_INLINE void store(float* p, Vector v, std::int64_t n) { _mm512_mask_storeu_ps(p, mask(n), v); }
};

}  // namespace

const GemmIsa gemm_avx512 = {"avx512", pack<Floats>, accumulate<Floats>, accumulate_unpacked<Floats>};

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
