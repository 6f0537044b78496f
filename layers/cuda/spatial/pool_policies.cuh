// What pool_small_windows computes of halves, and the largest of bytes.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/spatial/pool_small_windows_kernel.cuh"

namespace pipit::cuda {

/// What is compared: four bytes of elements at once.
struct Halves {
  static constexpr unsigned kLowest = 0xFC00FC00U;  // -inf twice: what padding is
  // NaN where either is.
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) {
    const __half2 m =
        __hmax2_nan(*reinterpret_cast<const __half2*>(&p), *reinterpret_cast<const __half2*>(&q));
    return *reinterpret_cast<const unsigned*>(&m);
  }
};
struct SignedBytes {
  static constexpr unsigned kLowest = 0x80808080U;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxs4(p, q); }
};
struct UnsignedBytes {
  static constexpr unsigned kLowest = 0;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxu4(p, q); }
};

/// Maxima of neighbouring channels.
template <typename Elements, int Bytes>
struct Largest {
  static constexpr int kWords = Bytes / 4;
  struct alignas(Bytes) Unit {
    unsigned words[kWords];
  };
  using Value = Unit;
  __device__ __forceinline__ Value value(const Unit& unit) const { return unit; }
  __device__ __forceinline__ Value outside() const {
    Value lowest;
#pragma unroll
    for (unsigned& word : lowest.words) word = Elements::kLowest;
    return lowest;
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value larger;
#pragma unroll
    for (int w = 0; w < kWords; ++w) larger.words[w] = Elements::larger(a.words[w], b.words[w]);
    return larger;
  }
  __device__ __forceinline__ Unit result(const Value& value, int /*h*/, int /*w*/, int /*kernel*/) const {
    return value;
  }
};

struct HalfAverages {
  static constexpr int kChannels = 4;  // eight take twice the registers, and longer
  struct alignas(kChannels * 2) Unit {
    unsigned words[kChannels / 2];  // of two halves, so that they are read and written together
  };
  struct Value {
    float sum[kChannels];
  };
  AveragedPositions positions;

  __device__ __forceinline__ Value value(const Unit& unit) const {
    Value value;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&unit.words[v / 2]));
      value.sum[v] = pair.x, value.sum[v + 1] = pair.y;
    }
    return value;
  }
  __device__ __forceinline__ Value outside() const {
    return {};
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value both;
#pragma unroll
    for (int v = 0; v < kChannels; ++v) both.sum[v] = a.sum[v] + b.sum[v];
    return both;
  }
  __device__ __forceinline__ Unit result(const Value& value, int h, int w, int kernel) const {
    // Rounded once more than a quotient, which halves do not show.
    const float factor = 1 / static_cast<float>(max(positions.divisor(h, w, kernel), 1));
    Unit unit;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      const __half2 pair = __floats2half2_rn(value.sum[v] * factor, value.sum[v + 1] * factor);
      unit.words[v / 2] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return unit;
  }
};

}  // namespace pipit::cuda
