// How 64 results become bytes, with what a file's target pragma allows: included inside its namespace.

// Bounds of results in units of the output's scale, before the zero point (of u8) is added.
struct ByteBounds {
  __m512 high;
  __m512i low;
  __m512i high_byte;  // the upper one as a result
  __m512i zero_point;
};

__attribute__((always_inline)) static inline ByteBounds byte_bounds(float low, float high, int zero_point) {
  return {_mm512_set1_ps(high),
          _mm512_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(low)) + zero_point)),
          _mm512_set1_epi8(static_cast<char>(_mm_cvtss_si32(_mm_set_ss(high)) + zero_point)),
          _mm512_set1_epi16(static_cast<short>(zero_point))};
}

// Rounding is monotone, so the lower bound may come after it; the upper one may not, for beyond 2^31 there is no
// conversion. NaN becomes the lower bound.
__attribute__((always_inline)) static inline __m512i round_below(__m512 x, const ByteBounds& bounds) {
  return _mm512_cvtps_epi32(_mm512_min_ps(bounds.high, x));
}

// The same of values that integers hold: the upper bound is then for bound_above().
__attribute__((always_inline)) static inline __m512i round_all(__m512 x) {
  return _mm512_cvtps_epi32(x);
}

__attribute__((always_inline)) static inline __m512i bound_above(__m512i bytes, const ByteBounds& bounds) {
  return _mm512_min_epu8(bytes, bounds.high_byte);
}

// Four vectors that went through round_below(), four lanes of each in turn.
__attribute__((always_inline)) static inline __m512i pack_interleaved(const __m512i* steps,
                                                                      const ByteBounds& bounds) {
  const __m512i first = _mm512_adds_epi16(_mm512_packs_epi32(steps[0], steps[1]), bounds.zero_point);
  const __m512i second = _mm512_adds_epi16(_mm512_packs_epi32(steps[2], steps[3]), bounds.zero_point);
  return _mm512_max_epu8(_mm512_packus_epi16(first, second), bounds.low);
}

// The lanes of one vector lie together again.
__attribute__((always_inline)) static inline __m512i in_order(__m512i interleaved) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, interleaved);
}
