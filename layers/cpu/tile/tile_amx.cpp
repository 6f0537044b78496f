// AMX: TDPBUSD adds to a tile register the products of 16 pixels and 16 outputs over up to 16 steps of K. Sums go
// through memory to the epilogue of the other tiles of bytes.
#include <utility>

#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_AMX
#if defined(__clang__)
#pragma clang attribute push(                                                                            \
    __attribute__((target("amx-tile,amx-int8,avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), \
    apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8,avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

namespace pipit::internal::amx {

namespace {

#include "layers/cpu/tile/tile_int8_avx512.h"
#include "layers/cpu/tile/tile_kernel_body.h"

#include "layers/cpu/tile/tile_amx_registers.h"

// Bias, epilogue and stores of `pixels` pixels of strip 0, as many at a time as four vectors hold. The bias comes last:
// loading the registers with it, rows at a distance of zero, took as long as all of this.
template <int Vectors, typename Finish>
PIPIT_TILE_INLINE void finish_strip(const Int8::Vector* sums, TileCall call, int pixels, Finish&& finish) {
  constexpr int kFour = 4 / Vectors;
  Int8::Vector bias[Vectors];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) bias[v] = Int8::start(call, v);
  const auto finish_next = [&](auto count) {
    constexpr int kCount = count() * Vectors;
    Int8::Vector whole[kCount];
    for (int i = 0; i < kCount; ++i) {
      whole[i] = reinterpret_cast<Int8::Vector>(
          _mm512_add_epi32(reinterpret_cast<__m512i>(sums[i]), reinterpret_cast<__m512i>(bias[i % Vectors])));
    }
    finish(whole, call, count);
    sums += count() * Vectors;
    call.c[0] += count() * call.c_stride;
    if (call.residual[0] != nullptr) call.residual[0] += count() * call.residual_stride;
    if (call.pixel_scale[0] != nullptr) call.pixel_scale[0] += count() * call.pixel_scale_step;
  };
  for (; pixels >= kFour; pixels -= kFour) finish_next(std::integral_constant<int, kFour>());
  for (; pixels > 0; --pixels) finish_next(std::integral_constant<int, 1>());
}

template <int Vectors>
PIPIT_TILE_INLINE void finish_any(const Int8::Vector* sums, const TileCall& call, int pixels) {
  const bool whole = call.columns == Vectors * 16;
  if (Int8::packs_bytes(call) && whole && call.small) {
    finish_strip<Vectors>(sums, call, pixels, [](const Int8::Vector* of, const TileCall& at, auto count) {
      Int8::finish_as<1, count(), Vectors, true, true>(of, at, at.residual[0] != nullptr);
    });
  } else if (Int8::packs_bytes(call)) {
    finish_strip<Vectors>(sums, call, pixels, [](const Int8::Vector* of, const TileCall& at, auto count) {
      Int8::finish_as<1, count(), Vectors, false, false>(of, at, at.residual[0] != nullptr);
    });
  } else if (whole) {
    finish_strip<Vectors>(sums, call, pixels, [](const Int8::Vector* of, const TileCall& at, auto count) {
      finish_pixels<Int8, true, 1, count(), Vectors>(of, at);
    });
  } else {
    finish_strip<Vectors>(sums, call, pixels, [](const Int8::Vector* of, const TileCall& at, auto count) {
      finish_pixels<Int8, false, 1, count(), Vectors>(of, at);
    });
  }
}

struct Bytes {
  static constexpr int kStep = 4;
  template <int Sums>
  PIPIT_TILE_INLINE void multiply() {
    if constexpr (Sums == 0) _tile_dpbusd(0, 4, 6);
    if constexpr (Sums == 1) _tile_dpbusd(1, 4, 7);
    if constexpr (Sums == 2) _tile_dpbusd(2, 5, 6);
    if constexpr (Sums == 3) _tile_dpbusd(3, 5, 7);
  }
  template <int Vectors>
  PIPIT_TILE_INLINE void finish(const Int8::Vector* sums, const TileCall& call, int pixels, int strip) {
    TileCall one = call;
    one.c[0] = call.c[strip];
    one.residual[0] = call.residual[strip];
    one.pixel_scale[0] = call.pixel_scale[strip];
    finish_any<Vectors>(sums, one, pixels);
  }
};

constexpr TileKernels kTiles = kernels_of<Bytes>(std::make_integer_sequence<int, kStrip>());

}  // namespace

}  // namespace pipit::internal::amx

const pipit::internal::TileKernels pipit::internal::u8s8_tiles_amx = pipit::internal::amx::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
