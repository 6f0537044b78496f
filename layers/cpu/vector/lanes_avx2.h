// Lanes for AVX2, FMA and F16C; see lanes_avx512.h.

struct Lanes {
  using Vector = __m256;
  static constexpr int kCount = 8;
  /// Whether load(p, count) is a few instructions and no loop.
  template <typename T>
  static constexpr bool kLoadsParts = !std::is_same_v<T, std::uint8_t>;
  static constexpr bool kLooksUp = false;

  PIPIT_LANES static Vector zero() { return _mm256_setzero_ps(); }
  PIPIT_LANES static Vector broadcast(float v) { return _mm256_set1_ps(v); }
  PIPIT_LANES static __m256i mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  PIPIT_LANES static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  PIPIT_LANES static Vector load(const float* p, int count) { return _mm256_maskload_ps(p, mask(count)); }
  PIPIT_LANES static Vector load(const Half* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  PIPIT_LANES static Vector load(const Half* p, int count) { return _mm256_cvtph_ps(load_words(p, count)); }
  PIPIT_LANES static Vector load(const BFloat16* p) {
    return upper_halves(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  PIPIT_LANES static Vector load(const BFloat16* p, int count) { return upper_halves(load_words(p, count)); }
  PIPIT_LANES static Vector upper_halves(__m128i words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
  // All pairs, and the last element where it is one of no pair; else it is there already.
  template <typename T>
  PIPIT_LANES static __m128i load_words(const T* p, int count) {
    if (count <= 0) return _mm_setzero_si128();
    const __m128i pairs = _mm_cmpgt_epi32(_mm_set1_epi32(count / 2), _mm_setr_epi32(0, 1, 2, 3));
    const __m128i last = _mm_cmpeq_epi16(_mm_set1_epi16(static_cast<std::int16_t>(count - 1)),
                                         _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7));
    std::int16_t bits;
    std::memcpy(&bits, p + count - 1, sizeof bits);
    return _mm_or_si128(_mm_maskload_epi32(reinterpret_cast<const int*>(p), pairs),
                        _mm_and_si128(last, _mm_set1_epi16(bits)));
  }
  PIPIT_LANES static Vector load(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // The first and the last bytes, which overlap.
  PIPIT_LANES static Vector load(const std::uint8_t* p, int count) {
    std::uint64_t all = 0;
    if (count == kCount) {
      std::memcpy(&all, p, kCount);
    } else if (count >= 4) {
      std::uint32_t first, last;
      std::memcpy(&first, p, 4);
      std::memcpy(&last, p + count - 4, 4);
      all = first | static_cast<std::uint64_t>(last) << (8 * (count - 4));
    } else if (count > 0) {
      const int middle = count / 2;
      all =
          p[0] | std::uint64_t{p[middle]} << (8 * middle) | std::uint64_t{p[count - 1]} << (8 * (count - 1));
    }
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<std::int64_t>(all))));
  }
  PIPIT_LANES static Vector add_integers(Vector v, const std::int32_t* n) {
    return _mm256_cvtepi32_ps(
        _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(n))));
  }
  PIPIT_LANES static void store_bytes(std::uint8_t* p, Vector v, int offset, int count) {
    // Byte 0 of every element to the front of its half, then both together.
    const __m256i integers = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(offset));
    const __m256i packed = _mm256_shuffle_epi8(integers, _mm256_set1_epi32(0x0C080400));
    const __m128i bytes =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    if (count == kCount) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
    } else {
      const std::int64_t all = _mm_cvtsi128_si64(bytes);
      std::memcpy(p, &all, static_cast<std::size_t>(count));
    }
  }
  PIPIT_LANES static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  PIPIT_LANES static void store(float* p, Vector v, int count) { _mm256_maskstore_ps(p, mask(count), v); }
  PIPIT_LANES static __m128i words_of(Vector v, const Half* /*type*/) {
    return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  }
  // As to_bfloat16().
  PIPIT_LANES static __m128i words_of(Vector v, const BFloat16* /*type*/) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), words_of(v, p));
  }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v, int count) {
    const __m128i words = words_of(v, p);
    _mm_maskstore_epi32(reinterpret_cast<int*>(p),
                        _mm_cmpgt_epi32(_mm_set1_epi32(count / 2), _mm_setr_epi32(0, 1, 2, 3)), words);
    if (count % 2 == 1) {
      T all[kCount];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(all), words);
      p[count - 1] = all[count - 1];
    }
  }

  PIPIT_LANES static float sum(Vector v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static constexpr int kRegisters = 16;
  using Index = __m256i;
  PIPIT_LANES static Index load_index(const std::int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  PIPIT_LANES static Vector permute(Vector v, Index index) { return _mm256_permutevar8x32_ps(v, index); }

  /// v, in a register: else a value with several uses may be read from memory for each of them.
  PIPIT_LANES static Vector keep(Vector v) {
    __asm__("" : "+x"(v));
    return v;
  }
  /// Calls the line of p into the first-level cache to be written: waiting for it to leave another core or the shared
  /// cache takes longer than computing what goes there. Processors without the instruction ignore it.
  PIPIT_LANES static void own(const void* p) {
    __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
  }
  PIPIT_LANES static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  PIPIT_LANES static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  PIPIT_LANES static Vector multiply_add(Vector sum, Vector a, Vector b) {
    return _mm256_fmadd_ps(a, b, sum);
  }
  PIPIT_LANES static Vector clamp(Vector v, Vector low, Vector high) {
    return _mm256_min_ps(high, _mm256_max_ps(low, v));
  }
  PIPIT_LANES static Vector clamp_numbers(Vector v, Vector low, Vector high) {
    return _mm256_min_ps(high, _mm256_max_ps(v, low));
  }
  PIPIT_LANES static Vector larger(Vector a, Vector b) {
    // b where either is NaN, then a where that is.
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }

  PIPIT_LANES static Vector reciprocal(Vector v) { return _mm256_div_ps(broadcast(1), v); }
  PIPIT_LANES static Vector scale(Vector v, Vector n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  PIPIT_LANES static Vector if_less(Vector a, Vector b, Vector x, Vector y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  PIPIT_LANES static Vector copy_sign(Vector v, Vector sign) {
    const __m256 bit = broadcast(-0.0F);
    return _mm256_or_ps(_mm256_and_ps(bit, sign), _mm256_andnot_ps(bit, v));
  }
};
