// AVX-512: 14 pixels by 32 outputs, 28 sums in 32 registers; without VNNI 10 pixels in int8.
#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), \
                             apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+v"(x))

namespace pipit::internal {

namespace {

#include "layers/cpu/tile/packed_kernel_body.h"
#include "layers/cpu/tile/tile_int8_avx512.h"
#include "layers/cpu/tile/tile_kernel_body.h"

struct F32 {
  using Vector = float __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kStep = 1;
  static constexpr int kStrip = 7;
  using Words = unsigned __attribute__((vector_size(64)));
  static constexpr int kPackedRows = 8;

  PIPIT_TILE_INLINE Vector zero() { return _mm512_setzero_ps(); }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(a));
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) { return _mm512_load_ps(b); }
  PIPIT_TILE_INLINE Vector pick(const std::byte* a, Vector b) {
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(b), _mm512_loadu_ps(a));
  }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
  PIPIT_TILE_INLINE Vector integers(const std::byte* b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b))));
  }
  PIPIT_TILE_INLINE Vector halves(const std::byte* b) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(b)));
  }
  PIPIT_TILE_INLINE Vector bfloats(const std::byte* b) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(b)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  // A look-up by the low four bits of every lane.
  PIPIT_TILE_INLINE Vector half_byte(Words words, int j) {
    const Vector values = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words >> (4 * j)), values);
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    if (call.bias == nullptr) return zero();
    return _mm512_maskz_loadu_ps(lanes_of(call, vector), call.bias + 16 * vector);
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* /*scale*/) {
    const __mmask16 lanes = Whole ? kAllLanes : lanes_of(call, vector);
    if (residual != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, residual + 64 * vector));
    // In this order a NaN passes.
    sum = _mm512_max_ps(_mm512_set1_ps(call.low), sum);
    sum = _mm512_min_ps(_mm512_set1_ps(call.high), sum);
    _mm512_mask_storeu_ps(c + 64 * vector, lanes, sum);
  }
};

// VPMADDUBSW, which multiplies bytes, saturates at 16 bits.
struct WideInt8 : Int8 {
  static constexpr int kStep = 2;
  static constexpr int kStrip = 6;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    const __m512i products = _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
    return reinterpret_cast<Vector>(_mm512_add_epi32(reinterpret_cast<__m512i>(sum), products));
  }
};

}  // namespace

const TileKernels f32_tiles_avx512 = PIPIT_TILE_KERNELS(F32, Isa::avx512);
const TileKernels u8s8_tiles_avx512 = PIPIT_TILE_KERNELS(WideInt8, Isa::avx512);
const PackedKernels packed_kernels_avx512 = PIPIT_PACKED_KERNELS(F32, Isa::avx512);

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push( \
    __attribute__((target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512vnni,avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

namespace pipit::internal::vnni {

namespace {

#include "layers/cpu/tile/tile_kernel_body.h"

struct U8S8 : Int8 {
  static constexpr int kStrip = 7;
  static constexpr int kLastSteps = 3;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_dpbusd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
};

// Sums of products of 16 bits, modulo 2^32 and stored as they are.
struct S16S16 : Int8 {
  static constexpr int kStep = 2;
  static constexpr int kStrip = 7;
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(_mm512_dpwssd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& /*call*/, int /*vector*/) { return zero(); }
  PIPIT_TILE_INLINE bool packs_bytes(const TileCall& /*call*/) { return false; }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* /*residual*/,
                                std::byte* c, const float* /*scale*/) {
    const __mmask16 lanes = Whole ? kAllLanes : lanes_of(call, vector);
    _mm512_mask_storeu_epi32(c + 64 * vector, lanes, reinterpret_cast<__m512i>(sum));
  }
};

constexpr TileKernels kTiles = PIPIT_TILE_KERNELS(U8S8, Isa::avx512vnni);
constexpr TileKernels kTiles16 = PIPIT_TILE_KERNELS(S16S16, Isa::avx512vnni);

}  // namespace

}  // namespace pipit::internal::vnni

const pipit::internal::TileKernels pipit::internal::u8s8_tiles_avx512vnni = pipit::internal::vnni::kTiles;
const pipit::internal::TileKernels pipit::internal::s16_tiles_avx512vnni = pipit::internal::vnni::kTiles16;

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
