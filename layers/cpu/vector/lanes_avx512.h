// Lanes for AVX-512, included in an unnamed namespace where the compiler's target is AVX-512 F, BW, DQ and VL.

#include "layers/cpu/vector/bfloat16_avx512.h"

/// One register of floats. Memory may hold floats, halves or bfloat16, at any alignment; `count` says how many elements
/// exist (the others read as 0 and are not written).
struct Lanes {
  using Vector = __m512;
  static constexpr int kCount = 16;

  PIPIT_LANES static Vector zero() { return _mm512_setzero_ps(); }
  PIPIT_LANES static Vector broadcast(float v) { return _mm512_set1_ps(v); }
  PIPIT_LANES static __mmask16 mask(int count) { return static_cast<__mmask16>((1U << count) - 1U); }

  PIPIT_LANES static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  PIPIT_LANES static Vector load(const float* p, int count) { return _mm512_maskz_loadu_ps(mask(count), p); }
  PIPIT_LANES static Vector load(const Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  PIPIT_LANES static Vector load(const Half* p, int count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(count), p));
  }
  PIPIT_LANES static Vector load(const BFloat16* p) {
    return widened_bfloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  PIPIT_LANES static Vector load(const BFloat16* p, int count) {
    return widened_bfloat16(_mm256_maskz_loadu_epi16(mask(count), p));
  }
  PIPIT_LANES static Vector load(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  PIPIT_LANES static Vector load(const std::uint8_t* p, int count) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask(count), p)));
  }
  /// float(int32(v) + n[i]), v a whole number.
  PIPIT_LANES static Vector add_integers(Vector v, const std::int32_t* n) {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_loadu_si512(n)));
  }
  /// The low bytes of int(v) + offset, rounded to nearest even.
  PIPIT_LANES static void store_bytes(std::uint8_t* p, Vector v, int offset, int count) {
    const __m512i integers = _mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(offset));
    if (count == kCount) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(integers));
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(p, mask(count), integers);
    }
  }
  PIPIT_LANES static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  PIPIT_LANES static void store(float* p, Vector v, int count) { _mm512_mask_storeu_ps(p, mask(count), v); }
  PIPIT_LANES static __m256i words_of(Vector v, const Half* /*type*/) {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  PIPIT_LANES static __m256i words_of(Vector v, const BFloat16* /*type*/) { return rounded_bfloat16(v); }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words_of(v, p));
  }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v, int count) {
    _mm256_mask_storeu_epi16(p, mask(count), words_of(v, p));
  }

  /// The sum of all lanes.
  PIPIT_LANES static float sum(Vector v) { return _mm512_reduce_add_ps(v); }
  /// Registers that there are.
  static constexpr int kRegisters = 32;
  /// Where each lane takes its element from.
  using Index = __m512i;
  PIPIT_LANES static Index load_index(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  PIPIT_LANES static Vector permute(Vector v, Index index) { return _mm512_permutexvar_ps(index, v); }

  /// Whether a register is a table of floats.
  /// Whether load(p, count) is a few instructions and no loop.
  template <typename T>
  static constexpr bool kLoadsParts = true;
  static constexpr bool kLooksUp = true;
  /// table[v] for whole numbers v in [0, 16); any entry for NaN.
  PIPIT_LANES static Vector look_up(const float* table, Vector v) {
    return _mm512_permutexvar_ps(_mm512_cvttps_epi32(v), _mm512_loadu_ps(table));
  }
  /// Rounded towards 0.
  PIPIT_LANES static Vector truncate(Vector v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }

  /// v, in a register: else a value with several uses may be read from memory for each of them.
  PIPIT_LANES static Vector keep(Vector v) {
    __asm__("" : "+v"(v));
    return v;
  }
  /// Calls the line of p into the first-level cache to be written: waiting for it to leave another core or the shared
  /// cache takes longer than computing what goes there. Processors without the instruction ignore it.
  PIPIT_LANES static void own(const void* p) {
    __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
  }
  PIPIT_LANES static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  PIPIT_LANES static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  PIPIT_LANES static Vector multiply_add(Vector sum, Vector a, Vector b) {
    return _mm512_fmadd_ps(a, b, sum);
  }
  /// NaN in v stays.
  PIPIT_LANES static Vector clamp(Vector v, Vector low, Vector high) {
    return _mm512_min_ps(high, _mm512_max_ps(low, v));
  }
  /// NaN in v becomes low.
  PIPIT_LANES static Vector clamp_numbers(Vector v, Vector low, Vector high) {
    return _mm512_min_ps(high, _mm512_max_ps(v, low));
  }
  /// The larger of both; NaN if either is.
  PIPIT_LANES static Vector larger(Vector a, Vector b) {
    // b where either is NaN, then a where that is: quiet and signalling NaN are classes 0 and 1 of the table.
    const __m512i if_nan = _mm512_set1_epi32(0x11);
    return _mm512_fixupimm_ps(_mm512_max_ps(a, b), a, if_nan, 0);
  }

  /// 1 / v within 1 ulp. Requires 1 <= v < 2^126 or NaN.
  PIPIT_LANES static Vector reciprocal(Vector v) {
    const Vector r = _mm512_rcp14_ps(v);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(v, r, broadcast(1)), r, r);
  }
  /// v * 2^n for integers n in [-127, 127], flushing 2^-127 to 0.
  PIPIT_LANES static Vector scale(Vector v, Vector n) { return _mm512_scalef_ps(v, n); }
  /// a < b ? x : y; y where a or b is NaN.
  PIPIT_LANES static Vector if_less(Vector a, Vector b, Vector x, Vector y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
  }
  PIPIT_LANES static Vector copy_sign(Vector v, Vector sign) {
    const __m512i bit = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign), _mm512_castps_si512(v), 0xCA));
  }
};
