// AMX: 32 pixels by 32 outputs, four tile registers of 16 x 16 sums; TDPBUSD adds to one the products of 16 pixels and
// 16 outputs over up to 16 steps of K. A panel is what it wants of weights: rows of one step, 4 bytes for each output.
// Sums go through memory to the epilogue of the other tiles of bytes.
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

constexpr int kStrip = 16;
constexpr std::int64_t kRowBytes = 64;  // of sums and of weights: 16 outputs

// What the tile registers of this thread are shaped for. Number 2 s + v holds the sums of strip s and vector v, 4 + s
// the pixels of strip s, 6 + v the weights of vector v.
struct Shapes {
  int pixels = 0;
  std::int32_t run = 0;
  int steps = 0;  // of K in a register
};
thread_local Shapes shapes;

// As LDTILECFG reads it.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// LDTILECFG takes about as long as a short sum.
__attribute__((noinline)) void shape_registers(int pixels, std::int32_t run) {
  const int steps = amx_steps(run);
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const bool reads_pixels = i == 4 || i == 5;
    config.row_bytes[i] = static_cast<std::uint16_t>(reads_pixels ? 4 * steps : kRowBytes);
    config.rows[i] = static_cast<std::uint8_t>(i < 6 ? pixels : steps);
  }
  __asm__ volatile("" : : "r"(&config) : "memory");  // the intrinsic does not say what it reads
  _tile_loadconfig(&config);
  shapes = {pixels, run, steps};
}

void release() {
  if (shapes.pixels == 0) return;
  _tile_release();
  shapes = {};
}

// What `count` steps are to fetch, every line once.
PIPIT_TILE_INLINE const std::byte* prefetch_lines(const std::byte* at, std::int64_t step, int count) {
  const std::byte* const end = at + count * step;
  const std::int64_t apart = step > 64 ? step : 64;
  for (; at < end; at += apart) __builtin_prefetch(at, 0, 2);
  return end;
}

// The sums of a tile to sums[strip][pixel][vector].
template <int Strips, int Vectors>
PIPIT_TILE_INLINE void multiply(const TileCall& call, int pixels, int steps, Int8::Vector* sums) {
  constexpr std::int64_t kPanelRow = Vectors * kRowBytes;
  _tile_zero(0);
  if constexpr (Vectors > 1) _tile_zero(1);
  if constexpr (Strips > 1) _tile_zero(2);
  if constexpr (Strips > 1 && Vectors > 1) _tile_zero(3);

  const std::int64_t a_stride = call.a_stride;
  const std::byte* weights = call.weights;
  const std::byte* prefetch = call.prefetch;
  for (std::int32_t s = 0; s < call.segment_count; ++s) {
    const std::byte* a0 = call.a[0] + call.segments[s];
    const std::byte* a1 = Strips > 1 ? call.a[1] + call.segments[s] : nullptr;
    for (std::int32_t left = call.run; left > 0; left -= steps) {
      _tile_loadd(6, weights, kPanelRow);
      _tile_loadd(4, a0, a_stride);
      _tile_dpbusd(0, 4, 6);
      if constexpr (Vectors > 1) {
        _tile_loadd(7, weights + kRowBytes, kPanelRow);
        _tile_dpbusd(1, 4, 7);
      }
      if constexpr (Strips > 1) {
        _tile_loadd(5, a1, a_stride);
        _tile_dpbusd(2, 5, 6);
        if constexpr (Vectors > 1) _tile_dpbusd(3, 5, 7);
        a1 += 4 * steps;
      }
      a0 += 4 * steps;
      weights += steps * kPanelRow;
      if (call.prefetch_step != 0) prefetch = prefetch_lines(prefetch, call.prefetch_step, steps);
    }
  }
  _tile_stored(0, sums, kPanelRow);
  if constexpr (Vectors > 1) _tile_stored(1, sums + 1, kPanelRow);
  if constexpr (Strips > 1) {
    sums += pixels * Vectors;
    _tile_stored(2, sums, kPanelRow);
    if constexpr (Vectors > 1) _tile_stored(3, sums + 1, kPanelRow);
  }
}

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

template <int Strips, int Vectors>
__attribute__((noinline)) void run(const TileCall& call, int pixels) {
  if (shapes.pixels != pixels || shapes.run != call.run) shape_registers(pixels, call.run);
  // The residual is usually in no cache near by: ask for it before the sums.
  for (int g = 0; g < Strips; ++g) {
    if (call.residual[g] == nullptr) continue;
#pragma GCC unroll 1
    for (int i = 0; i < pixels; ++i) __builtin_prefetch(call.residual[g] + i * call.residual_stride, 0, 3);
  }
  Int8::Vector sums[Strips * kStrip * Vectors];
  multiply<Strips, Vectors>(call, pixels, shapes.steps, sums);
  TileCall strip = call;
  for (int g = 0; g < Strips; ++g) {
    strip.c[0] = call.c[g];
    strip.residual[0] = call.residual[g];
    strip.pixel_scale[0] = call.pixel_scale[g];
    finish_any<Vectors>(sums + g * pixels * Vectors, strip, pixels);
  }
}

// One function for all numbers of pixels, which are rows of registers.
template <int Strips, int Pixels, int Vectors>
void tile_of(const TileCall& call) {
  run<Strips, Vectors>(call, Pixels);
}

void spin_registers(std::int64_t steps) {
  shape_registers(kStrip, 16);
  for (; steps > 0; steps -= 16) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  release();
}

template <int... Pixels>
constexpr TileKernels kernels(std::integer_sequence<int, Pixels...> /*pixels*/) {
  return {Isa::amx,
          16,
          kStrip,
          4,
          0,
          false,
          {{{tile_of<1, Pixels + 1, 1>, tile_of<1, Pixels + 1, 2>}...},
           {{tile_of<2, Pixels + 1, 1>, tile_of<2, Pixels + 1, 2>}...}},
          spin_registers,
          release};
}
constexpr TileKernels kTiles = kernels(std::make_integer_sequence<int, kStrip>());

}  // namespace

}  // namespace pipit::internal::amx

const pipit::internal::TileKernels pipit::internal::u8s8_tiles_amx = pipit::internal::amx::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
