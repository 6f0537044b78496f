// Elements of tensors in GPU code: storage to float and back.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/device/quantized_types.h"

namespace pipit::internal::cuda {

__device__ inline float load(float value) {
  return value;
}
__device__ inline float load(__half value) {
  return __half2float(value);
}
template <typename T>
__device__ T store(float value);
template <>
__device__ inline float store<float>(float value) {
  return value;
}
template <>
__device__ inline __half store<__half>(float value) {
  return __float2half_rn(value);
}

/// min(max(x, low), high) that keeps NaN.
__device__ inline float clamp_value(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

// Reading and storing quantized tensors one element at a time, exactly as layers/ops/quantization.h says.

/// Element `at`, less the zero point.
__device__ __forceinline__ int load_integer(const IntegerOperand& operand, const void* data,
                                            std::int64_t at) {
  const unsigned raw = static_cast<const std::uint8_t*>(data)[at] ^ (operand.flip & 0xFFU);
  return static_cast<std::int8_t>(raw) - operand.zero_point;
}

/// The integer for a value in steps. NaN becomes the lower bound.
__device__ __forceinline__ int whole_steps(float v, float low, float high) {
  return __float2int_rn(fminf(fmaxf(v, low), high));
}

/// Clamped as StepBounds says, then rounded to the element type; integers are moved by the zero point.
struct QuantizedStore {
  StoredType type = StoredType::i8;
  int zero_point = 0;
  float low = 0, high = 0;

  __device__ __forceinline__ int integer(float v) const { return whole_steps(v, low, high) + zero_point; }
  __device__ __forceinline__ void operator()(void* y, std::int64_t at, float v) const {
    if (type == StoredType::f32) {
      static_cast<float*>(y)[at] = clamp_value(v, low, high);
    } else if (type == StoredType::f16) {
      static_cast<__half*>(y)[at] = __float2half_rn(clamp_value(v, low, high));
    } else {
      static_cast<std::uint8_t*>(y)[at] = static_cast<std::uint8_t>(integer(v));
    }
  }
};

}  // namespace pipit::internal::cuda
