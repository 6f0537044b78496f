// Elements of f32 and f16 tensors in GPU code: storage to float and back.
#pragma once

#include <cuda_fp16.h>

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

}  // namespace pipit::internal::cuda
