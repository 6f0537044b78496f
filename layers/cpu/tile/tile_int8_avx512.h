// What all tiles of bytes with AVX-512 are but for their products: how sums start and what becomes of them. Included
// inside a file's namespace, with what its target pragma allows.
#include "layers/cpu/vector/requantize_avx512.h"

constexpr __mmask16 kAllLanes = 0xFFFF;

// Lanes of vector number `vector` that are stored.
PIPIT_TILE_INLINE __mmask16 lanes_of(const TileCall& call, int vector) {
  const int left = call.columns - 16 * vector;
  return left >= 16 ? kAllLanes : static_cast<__mmask16>((1U << left) - 1U);
}

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

  // Results that are bytes, with residuals of u8: four vectors are packed into one before they are bounded below and
  // stored, which takes 23 instructions instead of 32 (a residual 5 more for each vector).
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& call) {
    return call.output_type != TileType::f32 && call.bias == nullptr && call.pixel_scale[0] == nullptr &&
           (call.residual[0] == nullptr || call.residual_type == TileType::u8);
  }

  template <int Groups, int Pixels, int Vectors>
  PIPIT_TILE_INLINE void finish_bytes(const Vector* sums, const TileCall& call) {
    // Decided once, not for every vector: with a short sum the test takes as long as the products.
    const bool fast = call.small && call.columns == 16 * Vectors;
    if (fast && call.residual[0] == nullptr) {
      finish_as<Groups, Pixels, Vectors, true, true>(sums, call, false);
    } else if (fast) {
      finish_as<Groups, Pixels, Vectors, true, true>(sums, call, true);
    } else if (call.residual[0] == nullptr) {
      finish_as<Groups, Pixels, Vectors, false, false>(sums, call, false);
    } else {
      finish_as<Groups, Pixels, Vectors, false, false>(sums, call, true);
    }
  }

  // s8 is u8 with a zero point that is higher by 128, its upper bit turned afterwards.
  // `Small`: integers hold all results (TileCall::small); `Whole`: all lanes are stored.
  template <int Groups, int Pixels, int Vectors, bool Small, bool Whole>
  PIPIT_TILE_INLINE void finish_as(const Vector* sums, const TileCall& call, bool has_residual) {
    constexpr int kCount = Groups * Pixels * Vectors;
    const int moved = call.output_type == TileType::s8 ? 128 : 0;
    const ByteBounds bounds = byte_bounds(call.low, call.high, call.zero_point + moved);
    const __m512i turned = _mm512_set1_epi8(static_cast<char>(moved));
    __m512 multiplier[Vectors];
    __mmask16 lanes[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      lanes[v] = Whole ? kAllLanes : lanes_of(call, v);
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
        if (has_residual) {
          const std::byte* residual =
              call.residual[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.residual_stride + 16 * v;
          const __m128i raw = Whole ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(residual))
                                    : _mm_maskz_loadu_epi8(lanes[v], residual);
          x = _mm512_add_ps(x, steps_of(_mm512_cvtepu8_epi32(raw), call));
        }
        steps[j] = Small ? round_all(x) : round_below(x, bounds);
      }
      __m512i bytes = pack_interleaved(steps, bounds);
      if constexpr (Small) bytes = bound_above(bytes, bounds);
      store_bytes<Groups, Pixels, Vectors, Whole>(in_order(_mm512_xor_si512(bytes, turned)), first, call);
    }
  }

  // Whether results can be finished in integers: whole rows are stored, and saturation to signed bytes gives the upper
  // bound and, with the upper bit flipped, the zero point of u8.
  PIPIT_TILE_INLINE bool saturates(const TileCall& call) {
    return packs_bytes(call) && call.small && call.columns == 32 && call.high >= 127 &&
           call.zero_point == (call.output_type == TileType::s8 ? 0 : 128);
  }
  PIPIT_TILE_INLINE bool finishes_inside(const TileCall& call) {
    return call.residual[0] != nullptr && saturates(call);
  }
  struct Shared {
    __m512 multiplier[2];
    __m512i low;
    __m512i turned;
  };
  PIPIT_TILE_INLINE Shared shared_of(const TileCall& call) {
    const int turned = call.output_type == TileType::s8 ? 0 : 0x80;
    return {{_mm512_loadu_ps(call.multiplier), _mm512_loadu_ps(call.multiplier + 16)},
            _mm512_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(call.low)))),
            _mm512_set1_epi8(static_cast<char>(turned))};
  }
  template <int Pixels, int Pair>
  PIPIT_TILE_INLINE void finish_pair(const Vector* sums, const Shared& shared, const TileCall& call) {
    __m512i steps[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int i = 4 * Pair + j;
      const std::byte* residual =
          call.residual[i / (2 * Pixels)] + i / 2 % Pixels * call.residual_stride + 16 * (i % 2);
      const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(residual));
      const __m512 x =
          _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sums[i])), shared.multiplier[i % 2]);
      steps[j] = round_all(_mm512_add_ps(x, steps_of(_mm512_cvtepu8_epi32(raw), call)));
    }
    const __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(steps[0], steps[1]), _mm512_packs_epi32(steps[2], steps[3]));
    store_bytes<2, Pixels, 2, true>(
        in_order(_mm512_xor_si512(_mm512_max_epi8(bytes, shared.low), shared.turned)), 4 * Pair, call);
  }

  // Four vectors from number `first` on.
  template <int Groups, int Pixels, int Vectors, bool Whole>
  PIPIT_TILE_INLINE void store_bytes(__m512i bytes, int first, const TileCall& call) {
    constexpr int kCount = Groups * Pixels * Vectors;
    constexpr int kBytes = 16 * Vectors;  // of a pixel
#pragma GCC unroll 4
    for (int part = 0; part < 4 / Vectors; ++part) {
      const int i = first + part * Vectors;
      if (i >= kCount) break;
      std::byte* c = call.c[i / (Pixels * Vectors)] + i / Vectors % Pixels * call.c_stride;
      const bool whole = Whole || call.columns == kBytes;
      const __mmask32 wanted = whole ? ~__mmask32{0} : (__mmask32{1} << call.columns) - 1;
      if constexpr (Vectors == 2) {
        const __m256i pixel = part == 0 ? _mm512_castsi512_si256(bytes) : _mm512_extracti64x4_epi64(bytes, 1);
        if (whole) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), pixel);
        } else {
          _mm256_mask_storeu_epi8(c, wanted, pixel);
        }
      } else {
        const __m128i pixel = part == 0   ? _mm512_castsi512_si128(bytes)
                              : part == 1 ? _mm512_extracti32x4_epi32(bytes, 1)
                              : part == 2 ? _mm512_extracti32x4_epi32(bytes, 2)
                                          : _mm512_extracti32x4_epi32(bytes, 3);
        if (whole) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(c), pixel);
        } else {
          _mm_mask_storeu_epi8(c, static_cast<__mmask16>(wanted), pixel);
        }
      }
    }
  }

  PIPIT_TILE_INLINE __m512 residual_steps(__m128i raw, const TileCall& call) {
    return steps_of(
        call.residual_type == TileType::s8 ? _mm512_cvtepi8_epi32(raw) : _mm512_cvtepu8_epi32(raw), call);
  }
  PIPIT_TILE_INLINE __m512 steps_of(__m512i r, const TileCall& call) {
    const __m512 steps = _mm512_cvtepi32_ps(_mm512_sub_epi32(r, _mm512_set1_epi32(call.residual_zero_point)));
    return _mm512_mul_ps(steps, _mm512_set1_ps(call.residual_scale));
  }
};
