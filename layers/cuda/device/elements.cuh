// Elements of tensors in GPU code: storage to float and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "layers/cuda/device/quantized_types.h"

namespace pipit::internal::cuda {

__device__ inline float load(float value) {
  return value;
}
__device__ inline float load(__half value) {
  return __half2float(value);
}
__device__ inline float load(__nv_bfloat16 value) {
  return __bfloat162float(value);
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
template <>
__device__ inline __nv_bfloat16 store<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Elements of 16 bits, __half and __nv_bfloat16, two at a time. __hmax2_nan and __hmin2_nan take both, too.

template <typename Element>
using TwoOf = std::conditional_t<std::is_same_v<Element, __half>, __half2, __nv_bfloat162>;

__device__ __forceinline__ float2 to_floats(__half2 two) {
  return __half22float2(two);
}
__device__ __forceinline__ float2 to_floats(__nv_bfloat162 two) {
  return __bfloat1622float2(two);
}
/// Those of a word.
template <typename Element>
__device__ __forceinline__ float2 to_floats(std::uint32_t word) {
  return to_floats(*reinterpret_cast<const TwoOf<Element>*>(&word));
}
/// Rounded to nearest, ties to even.
template <typename Element>
__device__ __forceinline__ TwoOf<Element> to_two(float first, float second) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __floats2half2_rn(first, second);
  } else {
    return __floats2bfloat162_rn(first, second);
  }
}
template <typename Element>
__device__ __forceinline__ std::uint32_t to_word(float first, float second) {
  const TwoOf<Element> two = to_two<Element>(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&two);
}
/// The element with these bits.
template <typename Element>
__device__ __forceinline__ Element of_bits(unsigned short bits) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __ushort_as_half(bits);
  } else {
    return __ushort_as_bfloat16(bits);
  }
}
/// v as it is read again after it was stored.
template <typename Element>
__device__ __forceinline__ float rounded(float v) {
  return load(store<Element>(v));
}

// Kernels whose parameter is the type of their sums: float for products of halves, BfloatSum for those of bfloat16,
// std::int32_t for those of bytes.

/// A float. A type of its own says what is multiplied.
struct BfloatSum {
  float value;

  BfloatSum() = default;
  __device__ __forceinline__ BfloatSum(float v) : value(v) {}
  __device__ __forceinline__ operator float() const { return value; }
  __device__ __forceinline__ BfloatSum& operator+=(float v) {
    value += v;
    return *this;
  }
};
/// What such kernels multiply and store where sums are no integers.
template <typename Sum>
using NarrowOf = std::conditional_t<std::is_same_v<Sum, BfloatSum>, __nv_bfloat16, __half>;
/// The register of a sum, as asm takes it.
__device__ __forceinline__ float& register_of(float& sum) {
  return sum;
}
__device__ __forceinline__ float& register_of(BfloatSum& sum) {
  return sum.value;
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
    } else if (type == StoredType::bf16) {
      static_cast<__nv_bfloat16*>(y)[at] = __float2bfloat16_rn(clamp_value(v, low, high));
    } else {
      static_cast<std::uint8_t*>(y)[at] = static_cast<std::uint8_t>(integer(v));
    }
  }
};

}  // namespace pipit::internal::cuda
