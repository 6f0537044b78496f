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

struct Products {
  template <int Sums>
  PIPIT_TILE_INLINE void multiply() {
    if constexpr (Sums == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (Sums == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Sums == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (Sums == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

// Bias, epilogue and stores of strip `g`.
template <int Vectors, bool Whole>
PIPIT_TILE_INLINE void finish_strip(const SumVector* sums, const TileCall& call, int pixels, int g) {
  __m512 bias[Vectors];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) bias[v] = reinterpret_cast<__m512>(BF16Sums::start(call, v));
  const std::byte* residual = call.residual[g];
  std::byte* c = call.c[g];
#pragma GCC unroll 1
  for (int i = 0; i < pixels; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      const __m512 sum = _mm512_add_ps(reinterpret_cast<__m512>(sums[i * Vectors + v]), bias[v]);
      BF16Sums::finish<Whole>(reinterpret_cast<SumVector>(sum), call, v, residual, c, nullptr);
    }
    c += call.c_stride;
    if (residual != nullptr) residual += call.residual_stride;
  }
}

template <int Strips, int Vectors>
__attribute__((noinline)) void run(const TileCall& call, int pixels) {
  if (shapes.pixels != pixels || shapes.run != call.run) shape_registers(pixels, call.run);
  prefetch_residual<Strips>(call, pixels);
  SumVector sums[Strips * kStrip * Vectors];
  multiply<Products, Strips, Vectors>(call, pixels, shapes.steps, sums);
  const TileCall own = call;  // no store can change it
  for (int g = 0; g < Strips; ++g) {
    if (own.columns == Vectors * 16) {
      finish_strip<Vectors, true>(sums + g * pixels * Vectors, own, pixels, g);
    } else {
      finish_strip<Vectors, false>(sums + g * pixels * Vectors, own, pixels, g);
    }
  }
}

// One function for all numbers of pixels, which are rows of registers.
template <int Strips, int Pixels, int Vectors>
void tile_of(const TileCall& call) {
  run<Strips, Vectors>(call, Pixels);
}

template <int... Pixels>
constexpr TileKernels kernels(std::integer_sequence<int, Pixels...> /*pixels*/) {
  return {Isa::amx,
          16,
          kStrip,
          2,
          0,
          false,
          {{{tile_of<1, Pixels + 1, 1>, tile_of<1, Pixels + 1, 2>}...},
           {{tile_of<2, Pixels + 1, 1>, tile_of<2, Pixels + 1, 2>}...}},
          spin_registers<Products>,
          release};
}
constexpr TileKernels kTiles = kernels(std::make_integer_sequence<int, kStrip>());

}  // namespace

}  // namespace pipit::internal::amx_bf16

const pipit::internal::TileKernels pipit::internal::bf16_tiles_amx = pipit::internal::amx_bf16::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
