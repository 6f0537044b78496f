// Any CPU: vectors of four as the compiler makes them.
#include "engine/graph/half.h"
#include "layers/cpu/tile/tile_isa.h"

#if PIPIT_ISA_X86
#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+x"(x))
#else
#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+m"(x))
#endif

namespace pipit::internal {

namespace {

#include "layers/cpu/tile/packed_kernel_body.h"
#include "layers/cpu/tile/tile_kernel_body.h"

// How many lanes of vector number `vector` are stored.
PIPIT_TILE_INLINE int lanes_of(const TileCall& call, int vector) {
  return call.columns - 4 * vector < 4 ? call.columns - 4 * vector : 4;
}

// These lanes of [columns] values, and zeros.
template <typename Vector, typename Value>
PIPIT_TILE_INLINE Vector first_lanes(const TileCall& call, int vector, const Value* values) {
  Vector lanes{};
  for (int i = 0; i < lanes_of(call, vector); ++i) lanes[i] = values[4 * vector + i];
  return lanes;
}

struct F32 {
  using Vector = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kStep = 1;
  static constexpr int kStrip = 3;
  using Words = unsigned __attribute__((vector_size(16)));
  using Integers = int __attribute__((vector_size(16)));
  static constexpr int kPackedRows = 4;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    float value;
    std::memcpy(&value, a, sizeof value);
    return Vector{value, value, value, value};
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) {
    Vector value;
    std::memcpy(&value, b, sizeof value);
    return value;
  }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) { return sum + a * b; }
  // Four bytes at once: each to the top of its word, and back with the sign.
  PIPIT_TILE_INLINE Vector integers(const std::byte* b) {
    std::uint32_t bytes;
    std::memcpy(&bytes, b, sizeof bytes);
    const Words words = Words{bytes << 24, bytes << 16, bytes << 8, bytes};
    return __builtin_convertvector(reinterpret_cast<Integers>(words) >> 24, Vector);
  }
  // Out of line: the conversion is long.
  PIPIT_TILE_ONCE Vector halves(const std::byte* b) {
    Half half[4];
    std::memcpy(half, b, sizeof half);
    return Vector{to_float(half[0]), to_float(half[1]), to_float(half[2]), to_float(half[3])};
  }
  PIPIT_TILE_INLINE Vector bfloats(const std::byte* b) {
    using Halfwords = std::uint16_t __attribute__((vector_size(8)));
    Halfwords upper;
    std::memcpy(&upper, b, sizeof upper);
    return reinterpret_cast<Vector>(__builtin_convertvector(upper, Words) << 16);
  }
  PIPIT_TILE_INLINE Vector half_byte(Words words, int j) {
    return __builtin_convertvector(reinterpret_cast<Integers>(words << (28 - 4 * j)) >> 28, Vector);
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    return call.bias == nullptr ? zero() : first_lanes<Vector>(call, vector, call.bias);
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* /*scale*/) {
    const int first = kLanes * vector;
    const int end = Whole ? kLanes : lanes_of(call, vector);
    for (int i = 0; i < end; ++i) {
      float x = sum[i];
      if (residual != nullptr) x += reinterpret_cast<const float*>(residual)[first + i];
      x = x < call.low ? call.low : x;
      reinterpret_cast<float*>(c)[first + i] = x > call.high ? call.high : x;
    }
  }
};

struct WideInt8 {
  using Vector = int __attribute__((vector_size(16)));
  using Bits = unsigned __attribute__((vector_size(16)));  // sums wrap around
  static constexpr int kLanes = 4;
  static constexpr int kStep = 2;
  static constexpr int kStrip = 2;

  PIPIT_TILE_INLINE Vector zero() { return Vector{}; }
  PIPIT_TILE_INLINE Vector broadcast(const std::byte* a) {
    int value;
    std::memcpy(&value, a, sizeof value);
    return Vector{value, value, value, value};
  }
  PIPIT_TILE_INLINE Vector load(const std::byte* b) {
    Vector value;
    std::memcpy(&value, b, sizeof value);
    return value;
  }
  // Two products of 16 bits, whose sum no operands that are 8 bits wide bring beyond 32.
  PIPIT_TILE_INLINE Vector products(Vector a, Vector b) {
#if defined(__SSE2__)
    return reinterpret_cast<Vector>(
        _mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    const auto low = [](Vector x) { return reinterpret_cast<Vector>(reinterpret_cast<Bits>(x) << 16) >> 16; };
    return low(a) * low(b) + (a >> 16) * (b >> 16);
#endif
  }
  PIPIT_TILE_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
    return reinterpret_cast<Vector>(reinterpret_cast<Bits>(sum) + reinterpret_cast<Bits>(products(a, b)));
  }
  PIPIT_TILE_INLINE Vector start(const TileCall& call, int vector) {
    return first_lanes<Vector>(call, vector, call.sum_bias);
  }
  template <bool Whole>
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c, const float* scale) {
    const int first = kLanes * vector;
    const int end = Whole ? kLanes : lanes_of(call, vector);
    for (int i = 0; i < end; ++i) {
      float x = static_cast<float>(sum[i]) * call.multiplier[first + i];
      if (scale != nullptr) x *= *scale;
      if (call.bias != nullptr) x += call.bias[first + i];
      if (residual != nullptr && call.residual_type == TileType::f32) {
        x += reinterpret_cast<const float*>(residual)[first + i];
      } else if (residual != nullptr) {
        const auto raw = static_cast<int>(residual[first + i]);
        const int r = call.residual_type == TileType::s8 ? (raw ^ 0x80) - 0x80 : raw;
        x += static_cast<float>(r - call.residual_zero_point) * call.residual_scale;
      }
      if (call.output_type == TileType::f32) {
        x = x < call.low ? call.low : x;
        reinterpret_cast<float*>(c)[first + i] = x > call.high ? call.high : x;
      } else {
        x = x > call.low ? x : call.low;  // a NaN becomes the lower bound
        x = x > call.high ? call.high : x;
        c[first + i] = static_cast<std::byte>(static_cast<int>(std::nearbyint(x)) + call.zero_point);
      }
    }
  }
};

}  // namespace

const TileKernels f32_tiles_baseline = PIPIT_TILE_KERNELS(F32, Isa::baseline);
const TileKernels u8s8_tiles_baseline = PIPIT_TILE_KERNELS(WideInt8, Isa::baseline);
const PackedKernels packed_kernels_baseline = PIPIT_PACKED_KERNELS(F32, Isa::baseline);

}  // namespace pipit::internal
