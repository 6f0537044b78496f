// AVX2 and FMA: 6 pixels by 16 outputs, 12 sums in 16 registers; without VNNI 4 pixels in int8.
#include "layers/cpu/tile_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+x"(x))

namespace pipit {

namespace {

#include "layers/cpu/packed_kernel.inc"
#include "layers/cpu/tile_kernel.inc"

// All ones in the lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __m256i lanes_of(const TileCall& call, int vector) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(call.columns - 8 * vector),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct F32 {
  using Vector = float __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kStep = 1;
  static constexpr int kGroup = 3;
  using Words = unsigned __attribute__((vector_size(32)));
  static constexpr int kPackedRows = 4;

  PIPIT_TILE_INLINE Vector zero() { return _mm256_setzero_ps(); }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(a));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) {
    return _mm256_load_ps(reinterpret_cast<const float*>(b));
  }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm256_fmadd_ps(a, b, sum); }
  PIPIT_TILE_INLINE Vector integers(const std::byte* b) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b))));
  }
  PIPIT_TILE_INLINE Vector halves(const std::byte* b) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(b)));
  }
  // To the top of the word, and back with the sign.
  PIPIT_TILE_INLINE Vector half_byte(Words words, int j) {
    using Integers = int __attribute__((vector_size(32)));
    return _mm256_cvtepi32_ps(
        reinterpret_cast<__m256i>(reinterpret_cast<Integers>(words << (28 - 4 * j)) >> 28));
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    if (call.bias == nullptr) return zero();
    return _mm256_maskload_ps(call.bias + 8 * vector, lanes_of(call, vector));
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* /*scale*/) {
    const __m256i lanes = Whole ? __m256i{} : lanes_of(call, vector);
    if (residual != nullptr) {
      const float* r = reinterpret_cast<const float*>(residual) + 8 * vector;
      sum = _mm256_add_ps(sum, Whole ? _mm256_loadu_ps(r) : _mm256_maskload_ps(r, lanes));
    }
    // In this order a NaN passes.
    sum = _mm256_max_ps(_mm256_set1_ps(call.low), sum);
    sum = _mm256_min_ps(_mm256_set1_ps(call.high), sum);
    float* y = reinterpret_cast<float*>(c) + 8 * vector;
    if constexpr (Whole) {
      _mm256_storeu_ps(y, sum);
    } else {
      _mm256_maskstore_ps(y, lanes, sum);
    }
  }
};

struct Int8 {
  using Vector = int __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kStep = 4;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    int value;
    std::memcpy(&value, a, sizeof value);
    return reinterpret_cast<Vector>(_mm256_set1_epi32(value));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) {
    return reinterpret_cast<Vector>(_mm256_load_si256(reinterpret_cast<const __m256i*>(b)));
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    return reinterpret_cast<Vector>(
        _mm256_maskload_epi32(call.sum_bias + 8 * vector, lanes_of(call, vector)));
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* scale) {
    const __m256i lanes = lanes_of(call, vector);
    const int left = call.columns - 8 * vector;
    const std::size_t bytes = !Whole && left < 8 ? static_cast<std::size_t>(left) : 8;
    __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(reinterpret_cast<__m256i>(sum)),
                             _mm256_maskload_ps(call.multiplier + 8 * vector, lanes));
    if (scale != nullptr) x = _mm256_mul_ps(x, _mm256_set1_ps(*scale));
    if (call.bias != nullptr) x = _mm256_add_ps(x, _mm256_maskload_ps(call.bias + 8 * vector, lanes));
    if (residual != nullptr && call.residual_type == TileType::f32) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(reinterpret_cast<const float*>(residual) + 8 * vector, lanes));
    } else if (residual != nullptr) {
      long long eight = 0;
      std::memcpy(&eight, residual + 8 * vector, bytes);
      const __m128i raw = _mm_cvtsi64_si128(eight);
      const __m256i r =
          call.residual_type == TileType::s8 ? _mm256_cvtepi8_epi32(raw) : _mm256_cvtepu8_epi32(raw);
      const __m256 steps =
          _mm256_cvtepi32_ps(_mm256_sub_epi32(r, _mm256_set1_epi32(call.residual_zero_point)));
      x = _mm256_add_ps(x, _mm256_mul_ps(steps, _mm256_set1_ps(call.residual_scale)));
    }
    const __m256 low = _mm256_set1_ps(call.low);
    const __m256 high = _mm256_set1_ps(call.high);
    if (call.output_type == TileType::f32) {
      _mm256_maskstore_ps(reinterpret_cast<float*>(c) + 8 * vector, lanes,
                          _mm256_min_ps(high, _mm256_max_ps(low, x)));
      return;
    }
    // In this order a NaN becomes the lower bound.
    const __m256i rounded = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x, low), high)),
                                             _mm256_set1_epi32(call.zero_point));
    // The low byte of every lane.
    const __m256i low_bytes = _mm256_shuffle_epi8(
        rounded, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                                  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    const long long eight = _mm_cvtsi128_si64(
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low_bytes), _mm256_extracti128_si256(low_bytes, 1)));
    std::memcpy(c + 8 * vector, &eight, bytes);
  }
};

// VPMADDUBSW saturates at 16 bits. So products of 16 bits: bytes 0 and 2, then 1 and 3 of every four.
struct U8S8 : Int8 {
  static constexpr int kGroup = 2;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    const auto u = reinterpret_cast<__m256i>(a);
    const auto s = reinterpret_cast<__m256i>(b);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(0xFF)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    const auto total = reinterpret_cast<__m256i>(sum);
    return reinterpret_cast<Vector>(_mm256_add_epi32(_mm256_add_epi32(total, even), odd));
  }
};

}  // namespace

const TileKernels f32_tiles_avx2 = PIPIT_TILE_KERNELS(F32, Isa::avx2);
const TileKernels u8s8_tiles_avx2 = PIPIT_TILE_KERNELS(U8S8, Isa::avx2);
const PackedKernels packed_kernels_avx2 = PIPIT_PACKED_KERNELS(F32, Isa::avx2);

}  // namespace pipit

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avxvnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avxvnni,avx2,fma,f16c")
#endif

namespace pipit::vnni {

namespace {

#include "layers/cpu/tile_kernel.inc"

struct U8S8 : Int8 {
  static constexpr int kGroup = 3;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm256_dpbusd_avx_epi32(
        reinterpret_cast<__m256i>(sum), reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
};

constexpr TileKernels kTiles = PIPIT_TILE_KERNELS(U8S8, Isa::avxvnni);

}  // namespace

}  // namespace pipit::vnni

const pipit::TileKernels pipit::u8s8_tiles_avxvnni = pipit::vnni::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
