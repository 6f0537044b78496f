// AVX-512: 14 pixels by 32 outputs, 28 sums in 32 registers; without VNNI 10 pixels in int8.
#include "layers/cpu/tile/tile_isa.h"

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

#include "layers/cpu/tile/packed_kernel.inc"
#include "layers/cpu/tile/tile_kernel.inc"
#include "layers/cpu/vector/requantize_avx512.inc"

constexpr __mmask16 kAllLanes = 0xFFFF;

// Lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __mmask16 lanes_of(const TileCall& call, int vector) {
  const int left = call.columns - 16 * vector;
  return left >= 16 ? kAllLanes : static_cast<__mmask16>((1U << left) - 1U);
}

struct F32 {
  using Vector = float __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kStep = 1;
  static constexpr int kStrip = 7;
  using Words = unsigned __attribute__((vector_size(64)));
  static constexpr int kPackedRows = 8;

  PIPIT_TILE_INLINE Vector zero() { return _mm512_setzero_ps(); }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(a));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return _mm512_load_ps(b); }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  PIPIT_TILE_INLINE Vector integers(const std::byte* b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b))));
  }
  PIPIT_TILE_INLINE Vector halves(const std::byte* b) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(b)));
  }
  // A look-up by the low four bits of every lane.
  PIPIT_TILE_INLINE Vector half_byte(Words words, int j) {
    const Vector values = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> (4 * j)), values);
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    if (call.bias == nullptr) return zero();
    return _mm512_maskz_loadu_ps(lanes_of(call, vector), call.bias + 16 * vector);
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* /*scale*/) {
    const __mmask16 lanes = Whole ? kAllLanes : lanes_of(call, vector);
    if (residual != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, residual + 64 * vector));
    // In this order a NaN passes.
    sum = _mm512_max_ps(_mm512_set1_ps(call.low), sum);
    sum = _mm512_min_ps(_mm512_set1_ps(call.high), sum);
    _mm512_mask_storeu_ps(c + 64 * vector, lanes, sum);
  }
};

// Not __m512i: GCC 12 keeps an array of those in memory.
struct Int8 {
  using Vector = int __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kStep = 4;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    int value;
    std::memcpy(&value, a, sizeof value);
    return reinterpret_cast<Vector>(_mm512_set1_epi32(value));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return reinterpret_cast<Vector>(_mm512_load_si512(b)); }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    return reinterpret_cast<Vector>(
        _mm512_maskz_loadu_epi32(lanes_of(call, vector), call.sum_bias + 16 * vector));
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* scale) {
    const __mmask16 lanes = Whole ? kAllLanes : lanes_of(call, vector);
    __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)),
                             _mm512_maskz_loadu_ps(lanes, call.multiplier + 16 * vector));
    if (scale != nullptr) x = _mm512_mul_ps(x, _mm512_set1_ps(*scale));
    if (call.bias != nullptr) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, call.bias + 16 * vector));
    if (residual != nullptr && call.residual_type == TileType::f32) {
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, residual + 64 * vector));
    } else if (residual != nullptr) {
      x = _mm512_add_ps(x, residual_steps(_mm_maskz_loadu_epi8(lanes, residual + 16 * vector), call));
    }
    const __m512 low = _mm512_set1_ps(call.low);
    const __m512 high = _mm512_set1_ps(call.high);
    if (call.output_type == TileType::f32) {
      _mm512_mask_storeu_ps(c + 64 * vector, lanes, _mm512_min_ps(high, _mm512_max_ps(low, x)));
      return;
    }
    // In this order a NaN becomes the lower bound.
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(x, low), high));
    const __m512i y = _mm512_add_epi32(rounded, _mm512_set1_epi32(call.zero_point));
    if constexpr (Whole) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(c + 16 * vector), _mm512_cvtepi32_epi8(y));
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(c + 16 * vector, lanes, y);
    }
  }

  // Results that are bytes, and whose residuals are: four vectors are packed into one before they are bounded below and
  // stored, which takes 23 instructions in place of 32 (a residual 5 more for each vector).
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& call) {
    return call.output_type != TileType::f32 && call.bias == nullptr && call.pixel_scale[0] == nullptr &&
           (call.residual[0] == nullptr || call.residual_type != TileType::f32);
  }

  // s8 is u8 with a zero point that is higher by 128, its upper bit turned afterwards.
  template <int Groups, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void finish_bytes(const Vector* sums, const TileCall& call) {
    constexpr int kCount = Groups * Pixels * Vectors;
    const int moved = call.output_type == TileType::s8 ? 128 : 0;
    const ByteBounds bounds = byte_bounds(call.low, call.high, call.zero_point + moved);
    const __m512i turned = _mm512_set1_epi8(static_cast<char>(moved));
    __m512 multiplier[Vectors];
    __mmask16 lanes[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      lanes[v] = lanes_of(call, v);
      multiplier[v] = _mm512_maskz_loadu_ps(lanes[v], call.multiplier + 16 * v);
    }
#pragma GCC unroll 7
    for (int first = 0; first < kCount; first += 4) {
      __m512i steps[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const int i =
            first + j < kCount ? first + j : kCount - 1;  // what is missing at the end is not stored
        const int v = i % Vectors;
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sums[i])), multiplier[v]);
        if (call.residual[0] != nullptr) {
          const std::byte* residual =
              call.residual[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.residual_stride + 16 * v;
          x = _mm512_add_ps(x, residual_steps(_mm_maskz_loadu_epi8(lanes[v], residual), call));
        }
        steps[j] = round_below(x, bounds);
      }
      const __m512i bytes = _mm512_xor_si512(pack_interleaved(steps, bounds), turned);
      store_bytes<Groups, Pixels, Vectors>(in_order(bytes), first, call);
    }
  }

  // Four vectors from number `first` on.
  template <int Groups, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void store_bytes(__m512i bytes, int first, const TileCall& call) {
    constexpr int kCount = Groups * Pixels * Vectors;
    constexpr int kBytes = 16 * Vectors;  // of a pixel
#pragma GCC unroll 4
    for (int part = 0; part < 4 / Vectors; ++part) {
      const int i = first + part * Vectors;
      if (i >= kCount) break;
      std::byte* c = call.c[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.c_stride;
      const __mmask32 wanted = call.columns == kBytes ? ~__mmask32{0} : (__mmask32{1} << call.columns) - 1;
      if constexpr (Vectors == 2) {
        const __m256i pixel = part == 0 ? _mm512_castsi512_si256(bytes) : _mm512_extracti64x4_epi64(bytes, 1);
        if (call.columns == kBytes) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), pixel);
        } else {
          _mm256_mask_storeu_epi8(c, wanted, pixel);
        }
      } else {
        const __m128i pixel = part == 0   ? _mm512_castsi512_si128(bytes)
                              : part == 1 ? _mm512_extracti32x4_epi32(bytes, 1)
                              : part == 2 ? _mm512_extracti32x4_epi32(bytes, 2)
                                          : _mm512_extracti32x4_epi32(bytes, 3);
        if (call.columns == kBytes) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(c), pixel);
        } else {
          _mm_mask_storeu_epi8(c, static_cast<__mmask16>(wanted), pixel);
        }
      }
    }
  }

  PIPIT_TILE_INLINE __m512 residual_steps(__m128i raw, const TileCall& call) {
    const __m512i r =
        call.residual_type == TileType::s8 ? _mm512_cvtepi8_epi32(raw) : _mm512_cvtepu8_epi32(raw);
    const __m512 steps = _mm512_cvtepi32_ps(_mm512_sub_epi32(r, _mm512_set1_epi32(call.residual_zero_point)));
    return _mm512_mul_ps(steps, _mm512_set1_ps(call.residual_scale));
  }
};

// VPMADDUBSW, which multiplies bytes, saturates at 16 bits.
struct WideInt8 : Int8 {
  static constexpr int kStep = 2;
  static constexpr int kStrip = 6;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    const __m512i products = _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
    return reinterpret_cast<Vector>(_mm512_add_epi32(reinterpret_cast<__m512i>(sum), products));
  }
};

}  // namespace

const TileKernels f32_tiles_avx512 = PIPIT_TILE_KERNELS(F32, Isa::avx512);
const TileKernels u8s8_tiles_avx512 = PIPIT_TILE_KERNELS(WideInt8, Isa::avx512);
const PackedKernels packed_kernels_avx512 = PIPIT_PACKED_KERNELS(F32, Isa::avx512);

}  // namespace pipit

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push( \
    __attribute__((target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

namespace pipit::vnni {

namespace {

#include "layers/cpu/tile/tile_kernel.inc"

struct U8S8 : Int8 {
  static constexpr int kStrip = 7;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_dpbusd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
};

// Sums of products of 16 bits, modulo 2^32 and stored as they are.
struct S16S16 : Int8 {
  static constexpr int kStep = 2;
  static constexpr int kStrip = 7;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_dpwssd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& /*call*/, int /*vector*/) { return zero(); }
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& /*call*/) { return false; }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* /*residual*/,
                                std::byte* c, const float* /*scale*/) {
    const __mmask16 lanes = Whole ? kAllLanes : lanes_of(call, vector);
    _mm512_mask_storeu_epi32(c + 64 * vector, lanes, reinterpret_cast<__m512i>(sum));
  }
};

constexpr TileKernels kTiles = PIPIT_TILE_KERNELS(U8S8, Isa::avx512vnni);
constexpr TileKernels kTiles16 = PIPIT_TILE_KERNELS(S16S16, Isa::avx512vnni);

}  // namespace

}  // namespace pipit::vnni

const pipit::TileKernels pipit::u8s8_tiles_avx512vnni = pipit::vnni::kTiles;
const pipit::TileKernels pipit::s16_tiles_avx512vnni = pipit::vnni::kTiles16;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
