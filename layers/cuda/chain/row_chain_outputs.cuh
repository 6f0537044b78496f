// From sums to outputs in row_chain: fp16 as in conv_gemm_epilogue.cuh, INT8 as layers/ops/quantization.h specifies it,
// every operation rounded to f32.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "layers/cuda/chain/row_chain_plan.h"
#include "layers/cuda/conv/int8_math.cuh"
#include "layers/cuda/device/shared_access.cuh"

namespace pipit::cuda::row_chain {

/// What 4 * Vecs neighbouring outputs of a pixel need beside their sums, and how they are stored.
template <typename Sum, int Vecs>
struct Outputs;

template <int Words>
struct alignas(4 * Words) Packed {
  std::uint32_t word[Words];
};
template <int Words>
__device__ __forceinline__ Packed<Words> load_packed(std::uint32_t address) {
  Packed<Words> v;
  if constexpr (Words == 1) {
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(v.word[0]) : "r"(address) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n"
                 : "=r"(v.word[0]), "=r"(v.word[1])
                 : "r"(address)
                 : "memory");
  } else {
    const uint4 four = load_four(address);
    v.word[0] = four.x, v.word[1] = four.y, v.word[2] = four.z, v.word[3] = four.w;
  }
  return v;
}

template <int Words>
__device__ __forceinline__ void store_packed(std::uint32_t address, const Packed<Words>& v) {
  if constexpr (Words == 1) {
    asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(address), "r"(v.word[0]) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(address), "r"(v.word[0]), "r"(v.word[1])
                 : "memory");
  } else {
    store_four(address, make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
  }
}

template <int Vecs>
struct Outputs<float, Vecs> {
  using Stored = Packed<2 * Vecs>;
  uint4 bias[Vecs];
  // constants: of the part; output: the first in it.
  __device__ __forceinline__ void load(std::uint32_t constants, int output, int) {
#pragma unroll
    for (int v = 0; v < Vecs; ++v) bias[v] = load_four(constants + output * 4 + v * 16);
  }
  __device__ __forceinline__ Stored finish(const RowPart& part, const float (&sum)[4 * Vecs],
                                           Stored residual) const {
    const auto* added = reinterpret_cast<const float*>(bias);
    Stored y;
#pragma unroll
    for (int w = 0; w < 2 * Vecs; ++w) {
      float2 v = make_float2(sum[w * 2] + added[w * 2], sum[w * 2 + 1] + added[w * 2 + 1]);
      if (part.residual >= 0) {
        const float2 held = __half22float2(*reinterpret_cast<const __half2*>(&residual.word[w]));
        v.x += held.x, v.y += held.y;
      }
      v.x = v.x < part.low ? part.low : v.x;  // comparisons, not fminf: a NaN stays one
      v.x = v.x > part.high ? part.high : v.x;
      v.y = v.y < part.low ? part.low : v.y;
      v.y = v.y > part.high ? part.high : v.y;
      const __half2 pair = __floats2half2_rn(v.x, v.y);
      y.word[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
    return y;
  }
};

template <int Vecs>
struct Outputs<std::int32_t, Vecs> {
  using Stored = Packed<Vecs>;
  uint4 bias[Vecs], multiplier[Vecs];
  __device__ __forceinline__ void load(std::uint32_t constants, int output, int quads_log2) {
    const std::uint32_t at = constants + output * 4;
#pragma unroll
    for (int v = 0; v < Vecs; ++v) {
      bias[v] = load_four(at + v * 16);
      multiplier[v] = load_four(at + (128 << quads_log2) + v * 16);
    }
  }
  __device__ __forceinline__ Stored finish(const RowPart& part, const std::int32_t (&sum)[4 * Vecs],
                                           Stored residual) const {
    const auto* biases = reinterpret_cast<const std::int32_t*>(bias);
    const auto* multipliers = reinterpret_cast<const float*>(multiplier);
    Stored y;
#pragma unroll
    for (int w = 0; w < Vecs; ++w) {
      std::uint32_t bits[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float v = __fmul_rn(__int2float_rn(sum[w * 4 + j] + biases[w * 4 + j]), multipliers[w * 4 + j]);
        if (part.residual >= 0) {
          const auto held = static_cast<float>(static_cast<signed char>(residual.word[w] >> j % 4 * 8));
          v = __fadd_rn(v, __fmul_rn(held, part.residual_scale));
        }
        bits[j] = requantize_bits(v, part.low, part.high);
      }
      y.word[w] = low_bytes(bits);
    }
    return y;
  }
};

}  // namespace pipit::cuda::row_chain
