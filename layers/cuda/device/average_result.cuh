// Storing a global average.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/device/average_result.h"
#include "layers/cuda/device/quantized.cuh"

namespace pipit::cuda {

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

}  // namespace pipit::cuda
