// AVX512-BF16: 14 pixels by 32 outputs of two products each, summed up in f32: 28 sums in 32 registers.
#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_BF16
#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512bf16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+v"(x))

namespace pipit::internal::bf16 {

namespace {

#include "layers/cpu/tile/tile_bf16_avx512.h"
#include "layers/cpu/tile/tile_kernel_body.h"

struct BF16 : BF16Sums {
  static constexpr int kStrip = 7;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    int value;
    std::memcpy(&value, a, sizeof value);
    return reinterpret_cast<Vector>(_mm512_set1_epi32(value));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return reinterpret_cast<Vector>(_mm512_load_si512(b)); }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& call) { return stores_lines(call); }
  template <int Strips, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void finish_bytes(const Vector* sums, const TileCall& call) {
    if constexpr (Vectors == 2) {
#pragma GCC unroll 14
      for (int i = 0; i < Strips * Pixels; ++i) {
        const int strip = i / Pixels, pixel = i % Pixels;
        const std::byte* residual =
            call.residual[strip] != nullptr ? call.residual[strip] + pixel * call.residual_stride : nullptr;
        finish_line(reinterpret_cast<__m512>(sums[2 * i]), reinterpret_cast<__m512>(sums[2 * i + 1]), call,
                    residual, call.c[strip] + pixel * call.c_stride);
      }
    }
  }
};

constexpr TileKernels kTiles = PIPIT_TILE_KERNELS(BF16, Isa::avx512vnni);

}  // namespace

}  // namespace pipit::internal::bf16

const pipit::internal::TileKernels pipit::internal::bf16_tiles_avx512bf16 = pipit::internal::bf16::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
