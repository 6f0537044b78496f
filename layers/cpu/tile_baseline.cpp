// Any CPU: vectors of four as the compiler makes them.
#include "layers/cpu/tile_isa.h"

#define PIPIT_TILE_OPAQUE(x) __asm__ volatile("" : "+m"(x))

namespace pipit {

namespace {

#include "layers/cpu/tile_kernel.inc"

struct F32 {
  using Vector = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kGroup = 3;

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
  PIPIT_TILE_INLINE void finish(Vector sum, const TileCall& call, int vector, const std::byte* residual,
                                std::byte* c) {
    const int first = kLanes * vector;
    const int end = call.columns - first < kLanes ? call.columns - first : kLanes;
    for (int i = 0; i < end; ++i) {
      float x = sum[i];
      if (call.bias != nullptr) x += call.bias[first + i];
      if (residual != nullptr) x += reinterpret_cast<const float*>(residual)[first + i];
      x = x < call.low ? call.low : x;
      reinterpret_cast<float*>(c)[first + i] = x > call.high ? call.high : x;
    }
  }
};

}  // namespace

const TileKernels f32_tiles_baseline = PIPIT_TILE_KERNELS(F32, Isa::baseline);

}  // namespace pipit
