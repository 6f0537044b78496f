// From sums to what is stored. The arithmetic of layers/ops/quantization.h on a GPU, without conversion instructions
// where they can be avoided: those have a quarter of the rate of additions. Functions of halves; averages.
#pragma once

#include <cmath>
#include <cstdint>

#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/epilogue/functions.h"
#include "layers/ops/qelementwise.h"

namespace pipit::internal::cuda {

/// 1.5 * 2^23: a float this large has a step of 1, and its low bits are a whole number in two's complement.
inline constexpr float kMagic = 12582912.0F;

/// The number s of a sum that was started with kMagicBits. |s| < 2^22 (kSmallSum): the exponent stays that of kMagic.
__device__ __forceinline__ float small_to_float(int sum) {
  return __fadd_rn(__int_as_float(sum), -kMagic);
}

/// The bits of 2^23.
inline constexpr std::uint32_t kByteBase = 0x4B000000U;
/// The same in a grid of one layer, which the assembler does not know: as a constant it takes the place of the one that
/// says which bytes are taken, and that is fetched into a register for every byte. For kernels that have one left.
__device__ __forceinline__ std::uint32_t byte_base() {
  return kByteBase + blockIdx.z;
}
/// A signed byte of a word whose bytes had their highest bits flipped. base: the above.
__device__ __forceinline__ float biased_to_float(std::uint32_t biased, int byte, std::uint32_t base) {
  // 2^23 + (byte + 128), less that offset.
  constexpr float kOffset = 8388608.0F + 128.0F;
  return __fadd_rn(__uint_as_float(__byte_perm(biased, base, 0x7440 + byte)), -kOffset);
}
/// The two signed bytes of a word of 16 bits.
__device__ __forceinline__ float2 bytes_to_float(std::uint16_t pair, std::uint32_t base) {
  const std::uint32_t biased = pair ^ 0x8080U;
  return make_float2(biased_to_float(biased, 0, base), biased_to_float(biased, 1, base));
}

/// requantize() with zero point 0: the result is the low byte. low and high lie within +-255; NaN becomes low.
__device__ __forceinline__ std::uint32_t requantize_bits(float v, float low, float high) {
  // The addition rounds to whole numbers, ties to even, as kMagic is even.
  return __float_as_uint(__fadd_rn(fminf(fmaxf(v, low), high), kMagic));
}

/// requantize() of four with zero point 0, as bytes of a word. No v reaches kMaxSteps in magnitude: two at a time are
/// clamped as whole numbers of 16 bits. Relu: the lower bound is 0.
template <bool Relu>
__device__ __forceinline__ std::uint32_t requantize_four(const float (&v)[4], const PairBounds& bounds) {
  std::uint32_t pair[2];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const std::uint32_t both = __byte_perm(__float_as_uint(__fadd_rn(v[p * 2], kMagic)),
                                           __float_as_uint(__fadd_rn(v[p * 2 + 1], kMagic)), 0x5410);
    pair[p] =
        Relu ? __vimin_s16x2_relu(both, bounds.high) : __vmins2(__vmaxs2(both, bounds.low), bounds.high);
  }
  return __byte_perm(pair[0], pair[1], 0x6420);
}

/// An element of an f32 image as i8: the result is the low byte. NaN becomes -127.
__device__ __forceinline__ std::uint32_t image_bits(float x, const ImageScale& scale) {
  return __float_as_uint(__fadd_rn(scale.quotient(fminf(fmaxf(x, -scale.bound), scale.bound)), kMagic));
}

/// The low bytes of four words.
__device__ __forceinline__ std::uint32_t low_bytes(const std::uint32_t (&bits)[4]) {
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

// INT8 results: a sum times its multiplier, plus what is added, is in steps of y. It is clamped and stored as a real
// value, or rounded to a byte, which may go through a table. As layers/ops/quantization.h specifies it, bit for bit:
// every operation is rounded to f32, none is contracted.

/// small: the sum was started with kMagicBits.
__device__ __forceinline__ float scaled(int sum, float multiplier, bool small = false) {
  return __fmul_rn(small ? small_to_float(sum) : __int2float_rn(sum), multiplier);
}
__device__ __forceinline__ float with_residual(float v, float residual, float scale) {
  return __fadd_rn(v, __fmul_rn(residual, scale));
}

/// A function's table to shared memory, by the first 64 threads.
__device__ __forceinline__ void copy_table(std::uint8_t* to, const std::uint8_t* table) {
  if (threadIdx.x < 64)
    reinterpret_cast<std::uint32_t*>(to)[threadIdx.x] =
        reinterpret_cast<const std::uint32_t*>(table)[threadIdx.x];
}
__device__ __forceinline__ std::uint32_t looked_up(std::uint32_t bytes, const std::uint8_t* table) {
  std::uint32_t to[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) to[k] = table[bytes >> k * 8 & 0xFFU];
  return low_bytes(to);
}

/// The low byte is y's. LooksUp: it goes through the table.
template <bool LooksUp = false>
__device__ __forceinline__ std::uint32_t byte_of(float v, float low, float high,
                                                 const std::uint8_t* table = nullptr) {
  const std::uint32_t bits = requantize_bits(v, low, high);
  return LooksUp ? table[bits & 0xFFU] : bits;
}
/// Four results as bytes of a word.
template <bool LooksUp = false>
__device__ __forceinline__ std::uint32_t four_bytes(const float (&v)[4], float low, float high,
                                                    const std::uint8_t* table = nullptr) {
  std::uint32_t bits[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) bits[k] = byte_of<LooksUp>(v[k], low, high, table);
  return low_bytes(bits);
}
/// The same of four sums; sum(k): of the k-th. No result reaches kMaxSteps. Adds: a word of residuals is added.
/// base: byte_base().
template <bool Adds, bool Relu, typename SumOf>
__device__ __forceinline__ std::uint32_t four_bytes_of(const SumOf& sum, bool small,
                                                       const float (&multipliers)[4],
                                                       const PairBounds& bounds, std::uint32_t residual,
                                                       float residual_scale, std::uint32_t base) {
  const std::uint32_t biased = residual ^ 0x80808080U;
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = scaled(sum(k), multipliers[k], small);
    if constexpr (Adds) v[k] = with_residual(v[k], biased_to_float(biased, k, base), residual_scale);
  }
  return requantize_four<Relu>(v, bounds);
}

/// Neighbouring elements; y: aligned to all of them, up to 16 bytes.
template <int Count>
__device__ __forceinline__ void store_run(float* y, const float (&v)[Count]) {
#pragma unroll
  for (int k = 0; k < Count; k += 4)
    reinterpret_cast<float4*>(y)[k / 4] = make_float4(v[k], v[k + 1], v[k + 2], v[k + 3]);
}
/// Element: __half or __nv_bfloat16.
template <typename Element, int Count>
__device__ __forceinline__ void store_run(Element* y, const float (&v)[Count]) {
  struct alignas(Count * 2) {
    TwoOf<Element> pair[Count / 2];
  } run;
#pragma unroll
  for (int k = 0; k < Count; k += 2) run.pair[k / 2] = to_two<Element>(v[k], v[k + 1]);
  *reinterpret_cast<decltype(run)*>(y) = run;
}
/// The same of clamped values, as f16, bf16 or f32.
template <int Count>
__device__ __forceinline__ void store_clamped(StoredType type, void* y, std::int64_t at,
                                              const float (&v)[Count], float low, float high) {
  float clamped[Count];
#pragma unroll
  for (int k = 0; k < Count; ++k) clamped[k] = clamp_value(v[k], low, high);
  if (type == StoredType::f16) {
    store_run(static_cast<__half*>(y) + at, clamped);
  } else if (type == StoredType::bf16) {
    store_run(static_cast<__nv_bfloat16*>(y) + at, clamped);
  } else {
    store_run(static_cast<float*>(y) + at, clamped);
  }
}

// The element-wise functions of convolutions in fp16 and bf16, of values in registers.

namespace half_function {

/// 1 / (1 + 2^x), off by at most 2^-21 of it, and what x is off: ex2.approx is within 2^-22, rcp.approx within 1 ulp,
/// and what .ftz makes zero matters to neither the sum nor a half. 2^x may be infinite, which gives 0.
__device__ __forceinline__ float logistic(float x) {
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1 + power));
  return result;
}

}  // namespace half_function

/// v[i] = f(v[i]), for results that are rounded to half, by up to 2^-11 of them. A logistic gate is off by less than
/// 2^-17 of itself wherever the half is not zero: then the gate is above 2^-41 (a half ends at 2^-25, x at 2^16), and
/// |slope x| < 41 is off by 2^-23 of itself. A bfloat16 ends at 2^-134 instead: there |slope x| < 128, and the gate is
/// off by 2^-17 of itself, or by 2^-126. NaN stays NaN, and no finite v[i] becomes one. The branch is the same for
/// all threads and taken once for many values, so that their instructions overlap.
template <int Count>
__device__ __forceinline__ void apply(const HalfFunction& f, float (&v)[Count]) {
  switch (f.gate) {
    case HalfGate::logistic:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * half_function::logistic(f.slope * x);
      break;
    case HalfGate::linear:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * clamp_value(fmaf(f.slope, x, f.offset), 0, 1);
      break;
    default:
#pragma unroll
      for (float& x : v) x = x < 0 ? f.slope * x : x;
  }
}

/// v[i] = f(min(max(v[i], low), high)).
template <int Count>
__device__ __forceinline__ void apply_clamped(const HalfFunction& f, float low, float high,
                                              float (&v)[Count]) {
#pragma unroll
  for (float& x : v) x = clamp_value(x, low, high);
  apply(f, v);
}

// Storing a global average.

/// Element `at` of y: the average v, rounded as it would be stored, where a Quantize follows as that makes it.
__device__ __forceinline__ void store_average(const AverageResult& result, void* y, std::int64_t at,
                                              float v) {
  if (result.type == StoredType::f32) {
    static_cast<float*>(y)[at] = v;
  } else if (result.type == StoredType::f16) {
    static_cast<__half*>(y)[at] = __float2half_rn(v);
  } else if (result.type == StoredType::bf16) {
    static_cast<__nv_bfloat16*>(y)[at] = __float2bfloat16_rn(v);
  } else {
    if (result.read_as == StoredType::f16) v = rounded<__half>(v);
    if (result.read_as == StoredType::bf16) v = rounded<__nv_bfloat16>(v);
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
    if (V == 1 || is_real(store.type)) {
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
    return scaled(sum, factor);
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
