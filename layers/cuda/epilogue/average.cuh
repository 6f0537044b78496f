// Storing a global average.
#pragma once

#include <cuda_fp16.h>

#include <cmath>

#include "layers/cuda/device/quantized.cuh"
#include "layers/cuda/epilogue/average.h"
#include "layers/ops/qelementwise.h"

namespace pipit::internal::cuda {

/// Element `at` of y: the average v, rounded as it would be stored, where a Quantize follows as that makes it.
__device__ __forceinline__ void store_average(const AverageResult& result, void* y, std::int64_t at,
                                              float v) {
  if (result.type == StoredType::f32) {
    static_cast<float*>(y)[at] = v;
  } else if (result.type == StoredType::f16) {
    static_cast<__half*>(y)[at] = __float2half_rn(v);
  } else {
    if (result.as_half) v = __half2float(__float2half_rn(v));
    const QuantizedStore store{result.type, result.zero_point, result.low, result.high};
    static_cast<std::uint8_t*>(y)[at] = static_cast<std::uint8_t>(store.integer(__fdiv_rn(v, result.scale)));
  }
}

// What the pools of integers have in common: an average as QAveragePool specifies it.

// An average of `count` positions whose integers, less the zero point, add up to `sum`.
struct AverageStore {
  float x_scale = 1, y_scale = 1;
  QuantizedStore store;
  __device__ void operator()(void* y, std::int64_t at, int sum, int count) const {
    store(y, at, value(sum, count));
  }
  // Neighbours, `at` being a multiple of V.
  template <int V>
  __device__ void operator()(void* y, std::int64_t at, const int (&sums)[V], int count) const {
    if (V == 1 || store.type == StoredType::f32 || store.type == StoredType::f16) {
#pragma unroll
      for (int v = 0; v < V; ++v) (*this)(y, at + v, sums[v], count);
    } else {
      struct alignas(V) Bytes {
        std::uint8_t v[V];
      } bytes;
#pragma unroll
      for (int v = 0; v < V; ++v)
        bytes.v[v] = static_cast<std::uint8_t>(store.integer(value(sums[v], count)));
      *reinterpret_cast<Bytes*>(static_cast<std::uint8_t*>(y) + at) = bytes;
    }
  }
  __device__ float value(int sum, int count) const {
    const float factor = __fdiv_rn(x_scale, __fmul_rn(y_scale, __int2float_rn(max(count, 1))));
    return __fmul_rn(__int2float_rn(sum), factor);
  }
};

inline AverageStore store_of(const QAveragePoolAttributes& a, DType type) {
  const StepBounds bounds =
      a.y.quantized() ? step_bounds(a.y, -INFINITY, INFINITY) : StepBounds{-INFINITY, INFINITY};
  return {a.x.scale,
          a.y.quantized() ? a.y.scale : 1.0F,
          {stored_type(type), a.y.zero_point, bounds.low, bounds.high}};
}

}  // namespace pipit::internal::cuda
