// Lanes in plain C++; see lanes_avx512.h. Four floats are one register of every CPU that has vectors.

using FourFloats = float __attribute__((vector_size(16)));

// Out of line: the conversions are long.
template <typename T>
__attribute__((noinline)) void widen(const T* p, FourFloats& v) {
  v = FourFloats{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <typename T>
__attribute__((noinline)) void narrow(const FourFloats& v, T* p) {
  for (int i = 0; i < 4; ++i) p[i] = to_stored<T>(v[i]);
}

struct Lanes {
  using Vector = FourFloats;
  static constexpr int kCount = 4;
  /// Whether load(p, count) is a few instructions and no loop.
  template <typename T>
  static constexpr bool kLoadsParts = false;
  static constexpr bool kLooksUp = false;

  PIPIT_LANES static Vector zero() { return Vector{}; }
  PIPIT_LANES static Vector broadcast(float v) { return Vector{v, v, v, v}; }

  PIPIT_LANES static Vector load(const float* p) {
    Vector v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  PIPIT_LANES static Vector load(const Half* p) {
    Vector v;
    widen(p, v);
    return v;
  }
  PIPIT_LANES static Vector load(const BFloat16* p) {
    Vector v;
    widen(p, v);
    return v;
  }
  using Integers = std::int32_t __attribute__((vector_size(16)));
  using Words = std::uint32_t __attribute__((vector_size(16)));  // sums wrap around
  using Bytes = std::uint8_t __attribute__((vector_size(4)));
  PIPIT_LANES static Vector load(const std::uint8_t* p) {
    Bytes bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, Integers), Vector);
  }
  PIPIT_LANES static Vector add_integers(Vector v, const std::int32_t* n) {
    Words words;
    std::memcpy(&words, n, sizeof words);
    words += reinterpret_cast<Words>(__builtin_convertvector(v, Integers));
    return __builtin_convertvector(reinterpret_cast<Integers>(words), Vector);
  }
  // |v| < 2^22, where adding 1.5 * 2^23 rounds to an integer and leaves it in the last bits.
  PIPIT_LANES static void store_bytes(std::uint8_t* p, Vector v, int offset, int count) {
    const Words words = reinterpret_cast<Words>(v + 0x1.8p23F) + static_cast<std::uint32_t>(offset);
    const Bytes bytes = __builtin_convertvector(words, Bytes);
    std::memcpy(p, &bytes, static_cast<std::size_t>(count));
  }
  template <typename T>
  PIPIT_LANES static Vector load(const T* p, int count) {
    T all[kCount] = {};
    for (int i = 0; i < count; ++i) all[i] = p[i];
    return load(all);
  }
  PIPIT_LANES static Vector load(const float* p, int count) {
    return Vector{count > 0 ? p[0] : 0, count > 1 ? p[1] : 0, count > 2 ? p[2] : 0, count > 3 ? p[3] : 0};
  }
  PIPIT_LANES static void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v) {
    narrow(v, p);
  }
  PIPIT_LANES static void store(float* p, Vector v, int count) {
    if (count > 0) p[0] = v[0];
    if (count > 1) p[1] = v[1];
    if (count > 2) p[2] = v[2];
    if (count > 3) p[3] = v[3];
  }
  template <typename T>
  PIPIT_LANES static void store(T* p, Vector v, int count) {
    T all[kCount];
    store(all, v);
    for (int i = 0; i < count; ++i) p[i] = all[i];
  }

  PIPIT_LANES static float sum(Vector v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static constexpr int kRegisters = 16;
  using Index = const std::int32_t*;
  PIPIT_LANES static Index load_index(const std::int32_t* p) { return p; }
  PIPIT_LANES static Vector permute(Vector v, Index index) {
    return Vector{v[index[0]], v[index[1]], v[index[2]], v[index[3]]};
  }

  PIPIT_LANES static Vector keep(Vector v) { return v; }
  PIPIT_LANES static void own(const void* p) { __builtin_prefetch(p, 1); }
  PIPIT_LANES static Vector add(Vector a, Vector b) { return a + b; }
  PIPIT_LANES static Vector multiply(Vector a, Vector b) { return a * b; }
  PIPIT_LANES static Vector multiply_add(Vector sum, Vector a, Vector b) { return sum + a * b; }
  PIPIT_LANES static Vector clamp(Vector v, Vector low, Vector high) {
    v = v < low ? low : v;
    return v > high ? high : v;
  }
  PIPIT_LANES static Vector clamp_numbers(Vector v, Vector low, Vector high) {
    v = v > low ? v : low;
    return v > high ? high : v;
  }
  PIPIT_LANES static Vector larger(Vector a, Vector b) { return ((a > b) | (a != a)) ? a : b; }

  PIPIT_LANES static Vector reciprocal(Vector v) { return 1.0F / v; }
  PIPIT_LANES static Vector scale(Vector v, Vector n) {
    const Integers exponent = (__builtin_convertvector(n, Integers) + 127) << 23;
    return v * reinterpret_cast<Vector>(exponent);
  }
  PIPIT_LANES static Vector if_less(Vector a, Vector b, Vector x, Vector y) { return a < b ? x : y; }
  PIPIT_LANES static Vector copy_sign(Vector v, Vector sign) {
    const Integers bit = Integers{} + INT32_MIN;
    return reinterpret_cast<Vector>((bit & reinterpret_cast<Integers>(sign)) |
                                    (~bit & reinterpret_cast<Integers>(v)));
  }
};
