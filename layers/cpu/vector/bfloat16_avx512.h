// bfloat16 in AVX-512 registers, included under a target of AVX-512 F, BW and VL in an unnamed namespace of what is
// compiled for it.

// Words of 32-bit lanes: of each lane the upper one, and where the upper ones of 16 lanes come from and go to.
constexpr __mmask32 kUpperWords = 0xAAAAAAAA;

__attribute__((always_inline)) static inline __m512i upper_words_from(int first) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(first)), 16);
}

// Of 32 numbers the 16 from number `first` on.
__attribute__((always_inline)) static inline __m512 widened_bfloat16(__m512i words, int first) {
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpperWords, upper_words_from(first), words));
}

__attribute__((always_inline)) static inline __m512 widened_bfloat16(__m256i words) {
  return widened_bfloat16(_mm512_castsi256_si512(words), 0);
}

// As to_bfloat16(). AVX512-BF16 has an instruction, which takes subnormal numbers for 0.
__attribute__((always_inline)) static inline __m256i rounded_bfloat16(__m512 x) {
  // To the nearest: half a step is added, which carries only beyond it; from half a step on to even.
  const __m512i bits = _mm512_castps_si512(x);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i half = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  // Word 2 i + 1 becomes word i.
  const __m512i words = _mm512_setr_epi32(0x00030001, 0x00070005, 0x000B0009, 0x000F000D, 0x00130011,
                                          0x00170015, 0x001B0019, 0x001F001D, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi16(words, result));
}
