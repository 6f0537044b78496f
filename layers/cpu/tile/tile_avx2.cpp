// AVX2 and FMA: 6 pixels by 16 outputs, 12 sums in 16 registers.
#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+x"(x))

namespace pipit::internal {

namespace {

#include "layers/cpu/tile/packed_kernel_body.h"
#include "layers/cpu/tile/tile_kernel_body.h"

// All ones in the lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __m256i lanes_of(const TileCall& call, int vector) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(call.columns - 8 * vector),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct F32 {
  using Vector = float __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kStep = 1;
  static constexpr int kStrip = 3;
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
  PIPIT_TILE_INLINE Vector bfloats(const std::byte* b) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(b)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
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
      x = _mm256_add_ps(x, residual_steps(residual + 8 * vector, bytes, call));
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

  PIPIT_TILE_INLINE __m256 residual_steps(const std::byte* residual, std::size_t bytes,
                                          const TileCall& call) {
    long long eight = 0;
    std::memcpy(&eight, residual, bytes);
    const __m128i raw = _mm_cvtsi64_si128(eight);
    const __m256i r =
        call.residual_type == TileType::s8 ? _mm256_cvtepi8_epi32(raw) : _mm256_cvtepu8_epi32(raw);
    const __m256 steps = _mm256_cvtepi32_ps(_mm256_sub_epi32(r, _mm256_set1_epi32(call.residual_zero_point)));
    return _mm256_mul_ps(steps, _mm256_set1_ps(call.residual_scale));
  }

  // Results that are bytes, and whose residuals are: four vectors are packed into one before they are bounded below and
  // stored.
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& call) {
    return call.output_type != TileType::f32 && call.bias == nullptr && call.pixel_scale[0] == nullptr &&
           (call.residual[0] == nullptr || call.residual_type != TileType::f32);
  }

  template <int Groups, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void finish_bytes(const Vector* sums, const TileCall& call) {
    if (call.columns == Vectors * kLanes) {
      pack_vectors<true, Groups, Pixels, Vectors>(sums, call);
    } else {
      pack_vectors<false, Groups, Pixels, Vectors>(sums, call);
    }
  }

  // s8 is u8 with a zero point that is higher by 128, its upper bit turned afterwards. Rounding is monotone, so the
  // lower bound may come after it; the upper one may not, for beyond 2^31 there is no conversion. NaN becomes the lower
  // bound.
  template <bool Whole, int Groups, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void pack_vectors(const Vector* sums, const TileCall& call) {
    constexpr int kCount = Groups * Pixels * Vectors;
    const int moved = call.output_type == TileType::s8 ? 128 : 0;
    const int zero_point = call.zero_point + moved;
    const __m256i zero_points = _mm256_set1_epi16(static_cast<short>(zero_point));
    const __m256i low =
        _mm256_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(call.low)) + zero_point));
    const __m256i turned = _mm256_set1_epi8(static_cast<char>(moved));
    // The lanes of one vector lie together again.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256 multiplier[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      multiplier[v] = _mm256_maskload_ps(call.multiplier + 8 * v, lanes_of(call, v));
#pragma GCC unroll 3
    for (int first = 0; first < kCount; first += 4) {
      __m256i steps[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const int i =
            first + j < kCount ? first + j : kCount - 1;  // what is missing at the end is not stored
        const int v = i % Vectors;
        __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(reinterpret_cast<__m256i>(sums[i])), multiplier[v]);
        if (call.residual[0] != nullptr) {
          const std::byte* residual =
              call.residual[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.residual_stride + 8 * v;
          const int bytes = Whole || v + 1 < Vectors ? 8 : call.columns - 8 * v;
          x = _mm256_add_ps(x, residual_steps(residual, static_cast<std::size_t>(bytes), call));
        }
        steps[j] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_set1_ps(call.high), x));
      }
      const __m256i low_half = _mm256_adds_epi16(_mm256_packs_epi32(steps[0], steps[1]), zero_points);
      const __m256i high_half = _mm256_adds_epi16(_mm256_packs_epi32(steps[2], steps[3]), zero_points);
      const __m256i bounded = _mm256_max_epu8(_mm256_packus_epi16(low_half, high_half), low);
      const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_xor_si256(bounded, turned), order);
      alignas(32) std::byte pixels[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(pixels), bytes);
#pragma GCC unroll 4
      for (int part = 0; part < 4 / Vectors; ++part) {
        const int i = first + part * Vectors;
        if (i >= kCount) break;
        std::byte* c = call.c[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.c_stride;
        const int stored = Whole ? 8 * Vectors : call.columns;
        std::memcpy(c, pixels + 8 * (i - first), static_cast<std::size_t>(stored));
      }
    }
  }
};

// VPMADDUBSW, which multiplies bytes, saturates at 16 bits.
struct WideInt8 : Int8 {
  static constexpr int kStep = 2;
  static constexpr int kStrip = 3;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    const __m256i products = _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
    return reinterpret_cast<Vector>(_mm256_add_epi32(reinterpret_cast<__m256i>(sum), products));
  }
};

// Sums of products of 16 bits, modulo 2^32 and stored as they are.
struct S16S16 : WideInt8 {
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& /*call*/) { return false; }
  PIPIT_TILE_INLINE Vector start(const TileCall& /*call*/, int /*vector*/) { return zero(); }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* /*residual*/,
                                std::byte* c, const float* /*scale*/) {
    int* y = reinterpret_cast<int*>(c) + 8 * vector;
    if constexpr (Whole) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), reinterpret_cast<__m256i>(sum));
    } else {
      _mm256_maskstore_epi32(y, lanes_of(call, vector), reinterpret_cast<__m256i>(sum));
    }
  }
};

}  // namespace

const TileKernels f32_tiles_avx2 = PIPIT_TILE_KERNELS(F32, Isa::avx2);
const TileKernels u8s8_tiles_avx2 = PIPIT_TILE_KERNELS(WideInt8, Isa::avx2);
const TileKernels s16_tiles_avx2 = PIPIT_TILE_KERNELS(S16S16, Isa::avx2);
const PackedKernels packed_kernels_avx2 = PIPIT_PACKED_KERNELS(F32, Isa::avx2);

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avxvnni,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avxvnni,avx2,fma,f16c")
#endif

namespace pipit::internal::vnni {

namespace {

#include "layers/cpu/tile/tile_kernel_body.h"

struct U8S8 : Int8 {
  static constexpr int kStrip = 3;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm256_dpbusd_avx_epi32(
        reinterpret_cast<__m256i>(sum), reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
};

constexpr TileKernels kTiles = PIPIT_TILE_KERNELS(U8S8, Isa::avxvnni);

}  // namespace

}  // namespace pipit::internal::vnni

const pipit::internal::TileKernels pipit::internal::u8s8_tiles_avxvnni = pipit::internal::vnni::kTiles;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
