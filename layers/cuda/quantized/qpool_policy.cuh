// Averages of bytes as pool_small_windows computes them.
#pragma once

#include "layers/cuda/quantized/average_store.cuh"
#include "layers/cuda/spatial/pool_small_windows_kernel.cuh"

namespace pipit::cuda {

/// Sums are kept two in a word, of integers that are 128 above those of i8: 255 times the positions of a small window
/// fits 16 bits.
struct ByteAverages {
  static constexpr int kWords = 2;
  struct alignas(kWords * 4) Unit {
    unsigned words[kWords];
  };
  struct Value {
    unsigned even[kWords], odd[kWords];
  };
  AveragedPositions positions;
  IntegerOperand x;
  AverageStore average;

  __device__ __forceinline__ Value value(const Unit& unit) const {
    Value value;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const unsigned word = unit.words[w] ^ x.flip ^ 0x80808080U;
      value.even[w] = word & 0x00FF00FFU;
      value.odd[w] = word >> 8 & 0x00FF00FFU;
    }
    return value;
  }
  __device__ __forceinline__ Value outside() const {
    return {};
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value both;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      both.even[w] = a.even[w] + b.even[w];
      both.odd[w] = a.odd[w] + b.odd[w];
    }
    return both;
  }
  __device__ __forceinline__ Unit result(const Value& value, int h, int w, int kernel) const {
    const int zeros = positions.inside(h, w, kernel) * (128 + x.zero_point);
    const int divisor = positions.divisor(h, w, kernel);
    Unit unit{};
#pragma unroll
    for (int v = 0; v < kWords * 4; ++v) {
      const unsigned pair = v % 2 == 0 ? value.even[v / 4] : value.odd[v / 4];
      const int sum = static_cast<int>(pair >> v % 4 / 2 * 16 & 0xFFFFU) - zeros;
      const int y = average.store.integer(average.value(sum, divisor));
      unit.words[v / 4] |= static_cast<unsigned>(y & 0xFF) << v % 4 * 8;
    }
    return unit;
  }
};

}  // namespace pipit::cuda
