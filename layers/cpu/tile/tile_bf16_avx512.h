// The epilogue of bfloat16 tiles, included by tile_avx512bf16.cpp and tile_amx_bf16.cpp in a namespace of their own and
// under their target pragma.

#include "layers/cpu/vector/bfloat16_avx512.h"

// Sums of 16 outputs of a pixel. AVX512-BF16 and AMX take subnormal operands and results for 0, also where they round.
struct BF16Sums {
  using Vector =
      float __attribute__((vector_size(64)));  // GCC 12 would keep sums in memory that are integers or __m512
  static constexpr int kLanes = 16;
  static constexpr int kStep = 2;

  PIPIT_TILE_INLINE __mmask16 lanes_of(const TileCall& call, int vector) {
    const int left = call.columns - 16 * vector;
    return left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
  }
  // The bias.
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    if (call.bias == nullptr) return Vector{};
    return reinterpret_cast<Vector>(_mm512_maskz_loadu_ps(lanes_of(call, vector), call.bias + 16 * vector));
  }
  // sum: with the bias.
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* /*scale*/) {
    const __mmask16 lanes = Whole ? static_cast<__mmask16>(0xFFFF) : lanes_of(call, vector);
    auto x = reinterpret_cast<__m512>(sum);
    if (residual != nullptr) {
      const __m256i words = _mm256_maskz_loadu_epi16(lanes, residual + 32 * vector);
      x = _mm512_add_ps(x, widened_bfloat16(words));
    }
    // In this order a NaN passes.
    x = _mm512_max_ps(_mm512_set1_ps(call.low), x);
    x = _mm512_min_ps(_mm512_set1_ps(call.high), x);
    if (call.output_type == TileType::f32) {
      _mm512_mask_storeu_ps(c + 64 * vector, lanes, x);
    } else {
      _mm256_mask_storeu_epi16(c + 32 * vector, lanes, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    }
  }

  // Whole rows of 32 outputs in bfloat16: both vectors of a pixel are rounded into one, which is a line of the cache.
  PIPIT_TILE_INLINE bool stores_lines(const TileCall& call) {
    return call.output_type == TileType::bf16 && call.columns == 2 * kLanes;
  }
  // sums: with the bias.
  PIPIT_TILE_INLINE void finish_line(__m512 first, __m512 second, const TileCall& call,
                                     const std::byte* residual, std::byte* c) {
    if (residual != nullptr) {
      const __m512i words = _mm512_loadu_si512(residual);
      first = _mm512_add_ps(first, widened_bfloat16(words, 0));
      second = _mm512_add_ps(second, widened_bfloat16(words, kLanes));
    }
    const __m512 low = _mm512_set1_ps(call.low);
    const __m512 high = _mm512_set1_ps(call.high);
    first = _mm512_min_ps(high, _mm512_max_ps(low, first));
    second = _mm512_min_ps(high, _mm512_max_ps(low, second));
    _mm512_storeu_si512(c, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
  }
};
