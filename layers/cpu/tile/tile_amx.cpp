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
#pragma GCC unroll 4
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

// Products of the residual are then exact in one operation: with its zero point's product, which is exact itself.
bool steps_in_one(const TileCall& call) {
  return call.residual_zero_point == 128 || call.residual_zero_point == 0;
}

// Two pixels' steps to bytes that saturation to signed bytes bounds above. `Positive`: to u8, with a lower bound of 0:
// saturation to u8 is this bound, and the saturating addition of the zero point, 128, the upper one.
template <bool Positive>
PIPIT_TILE_INLINE __m512i saturated_bytes(const __m512i* steps, const Int8::Shared& shared) {
  const __m512i first = _mm512_packs_epi32(steps[0], steps[1]);
  const __m512i second = _mm512_packs_epi32(steps[2], steps[3]);
  if constexpr (Positive) {
    return in_order(_mm512_adds_epu8(_mm512_packus_epi16(first, second), shared.turned));
  } else {
    const __m512i bytes = _mm512_max_epi8(_mm512_packs_epi16(first, second), shared.low);
    return in_order(_mm512_xor_si512(bytes, shared.turned));
  }
}

// A tile of rows of 32 bytes that saturation to signed bytes bounds above (Int8::saturates()), two pixels at a time; a
// residual has steps_in_one(). What the pixels of both strips share is loaded once.
template <int Strips, bool HasResidual, bool Positive>
PIPIT_TILE_INLINE void finish_saturated(const Int8::Vector* sums, const TileCall& call, int pixels) {
  const __m512i bias[2] = {reinterpret_cast<__m512i>(Int8::start(call, 0)),
                           reinterpret_cast<__m512i>(Int8::start(call, 1))};
  const Int8::Shared shared = Int8::shared_of(call);
  const __m512 scale = _mm512_set1_ps(call.residual_scale);
  const __m512 zero_point =
      _mm512_set1_ps(-static_cast<float>(call.residual_zero_point) * call.residual_scale);
  // Locals, which no store can change.
  const std::int64_t c_stride = call.c_stride;
  const std::int64_t residual_stride = call.residual_stride;
  std::byte* const c_of[2] = {call.c[0], call.c[1]};
  const std::byte* const residual_of[2] = {call.residual[0], call.residual[1]};
#pragma GCC unroll 1
  for (int g = 0; g < Strips; ++g) {
    std::byte* c = c_of[g];
    const std::byte* residual = residual_of[g];
#pragma GCC unroll 1
    for (int i = 0; i < pixels; i += 2) {
      const bool two = i + 1 < pixels;  // or the second is computed from anything
      __m512i steps[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512i sum = _mm512_add_epi32(reinterpret_cast<__m512i>(sums[j]), bias[j % 2]);
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), shared.multiplier[j % 2]);
        if constexpr (HasResidual) {
          const std::byte* at = residual + (j >= 2 && two ? residual_stride : 0) + 16 * (j % 2);
          const __m512i r = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
          x = _mm512_add_ps(x, _mm512_fmadd_ps(_mm512_cvtepi32_ps(r), scale, zero_point));
        }
        steps[j] = round_all(x);
      }
      const __m512i bytes = saturated_bytes<Positive>(steps, shared);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), _mm512_castsi512_si256(bytes));
      if (two)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(c + c_stride), _mm512_extracti64x4_epi64(bytes, 1));
      sums += two ? 4 : 2;
      c += 2 * c_stride;
      if constexpr (HasResidual) residual += 2 * residual_stride;
    }
  }
}

template <int Strips, bool HasResidual>
PIPIT_TILE_INLINE void finish_saturated(const Int8::Vector* sums, const TileCall& call, int pixels) {
  if (call.low == 0 && call.output_type == TileType::u8) {
    finish_saturated<Strips, HasResidual, true>(sums, call, pixels);
  } else {
    finish_saturated<Strips, HasResidual, false>(sums, call, pixels);
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
  template <int Strips, int Vectors>
  PIPIT_TILE_INLINE void finish_tile(const Int8::Vector* sums, const TileCall& call, int pixels) {
    if constexpr (Vectors == 2) {
      if (Int8::saturates(call) && call.residual[0] == nullptr)
        return finish_saturated<Strips, false>(sums, call, pixels);
      if (Int8::saturates(call) && steps_in_one(call))
        return finish_saturated<Strips, true>(sums, call, pixels);
    }
    TileCall one = call;
    for (int g = 0; g < Strips; ++g) {
      one.c[0] = call.c[g];
      one.residual[0] = call.residual[g];
      one.pixel_scale[0] = call.pixel_scale[g];
      finish_any<Vectors>(sums + g * pixels * Vectors, one, pixels);
    }
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
