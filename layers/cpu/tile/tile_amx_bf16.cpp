// AMX: TDPBF16PS adds to a tile register the products of 16 pixels and 16 outputs over up to 16 steps of K. Sums go
// through memory to the epilogue of the other tiles of bfloat16.
#include <utility>

#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_AMX
#if defined(__clang__)
#pragma clang attribute push(                                                                            \
    __attribute__((target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), \
    apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512bf16,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

namespace pipit::internal::amx_bf16 {

namespace {

#include "layers/cpu/tile/tile_amx_registers.h"
#include "layers/cpu/tile/tile_bf16_avx512.h"

struct BF16 : BF16Sums {
  template <int Sums>
  PIPIT_TILE_INLINE void multiply() {
    if constexpr (Sums == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (Sums == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Sums == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (Sums == 3) _tile_dpbf16ps(3, 5, 7);
  }
  template <int Strips, int Vectors>
  PIPIT_TILE_INLINE void finish_tile(const SumVector* sums, const TileCall& call, int pixels) {
    const TileCall own = call;  // no store can change it
    for (int g = 0; g < Strips; ++g) finish<Vectors>(sums + g * pixels * Vectors, own, pixels, g);
  }
  template <int Vectors>
  PIPIT_TILE_INLINE void finish(const SumVector* sums, const TileCall& call, int pixels, int strip) {
    if constexpr (Vectors == 2) {
      if (stores_lines(call)) {
        finish_lines(sums, call, pixels, strip);
        return;
      }
    }
    if (call.columns == Vectors * 16) {
      finish_pixels<Vectors, true>(sums, call, pixels, strip);
    } else {
      finish_pixels<Vectors, false>(sums, call, pixels, strip);
    }
  }
  PIPIT_TILE_INLINE void finish_lines(const SumVector* sums, const TileCall& call, int pixels, int strip) {
    const __m512 bias[2] = {reinterpret_cast<__m512>(start(call, 0)),
                            reinterpret_cast<__m512>(start(call, 1))};
    const std::byte* residual = call.residual[strip];
    std::byte* c = call.c[strip];
#pragma GCC unroll 1
    for (int i = 0; i < pixels; ++i, sums += 2, c += call.c_stride) {
      finish_line(_mm512_add_ps(reinterpret_cast<__m512>(sums[0]), bias[0]),
                  _mm512_add_ps(reinterpret_cast<__m512>(sums[1]), bias[1]), call, residual, c);
      if (residual != nullptr) residual += call.residual_stride;
    }
  }
  template <int Vectors, bool Whole>
  PIPIT_TILE_INLINE void finish_pixels(const SumVector* sums, const TileCall& call, int pixels, int strip) {
    __m512 bias[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) bias[v] = reinterpret_cast<__m512>(start(call, v));
    const std::byte* residual = call.residual[strip];
    std::byte* c = call.c[strip];
#pragma GCC unroll 1
    for (int i = 0; i < pixels; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        const __m512 sum = _mm512_add_ps(reinterpret_cast<__m512>(sums[i * Vectors + v]), bias[v]);
        BF16Sums::finish<Whole>(reinterpret_cast<Vector>(sum), call, v, residual, c, nullptr);
      }
      c += call.c_stride;
      if (residual != nullptr) residual += call.residual_stride;
    }
  }
};

constexpr TileKernels kTiles = kernels_of<BF16>(std::make_integer_sequence<int, kStrip>());

}  // namespace

}  // namespace pipit::internal::amx_bf16

const pipit::internal::TileKernels pipit::internal::bf16_tiles_amx = pipit::internal::amx_bf16::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
