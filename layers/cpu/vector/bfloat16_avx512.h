// bfloat16 in AVX-512 registers, included under a target of AVX-512 F, BW and VL in an unnamed namespace of what is
// compiled for it.

__attribute__((always_inline)) static inline __m512 widened_bfloat16(__m256i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

// As to_bfloat16(). AVX512-BF16 has an instruction, which takes subnormal numbers for 0.
__attribute__((always_inline)) static inline __m256i rounded_bfloat16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}
