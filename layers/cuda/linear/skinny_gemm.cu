#include "layers/cuda/linear/gemm.h"

#include <cuda_fp16.h>

#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

namespace {

constexpr int kWarps = 4;                   // of a block, a column each
constexpr int kLoads = 8;                   // 16-byte loads of a lane that are in flight together
constexpr int kChunksAtOnce = 32 * kLoads;  // chunks of eight halves that a warp reads at once

__device__ __forceinline__ void multiply_add(const uint4& a, const uint4& b, float& even, float& odd) {
  const unsigned x[4] = {a.x, a.y, a.z, a.w};
  const unsigned w[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 p = __half22float2(*reinterpret_cast<const __half2*>(&x[i]));
    const float2 q = __half22float2(*reinterpret_cast<const __half2*>(&w[i]));
    even = fmaf(p.x, q.x, even);
    odd = fmaf(p.y, q.y, odd);
  }
}

// A warp per column: its lanes share k, each reading every 32nd chunk of eight.
__global__ void __launch_bounds__(kWarps * 32) skinny_gemm(const __grid_constant__ SkinnyGemm g) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int chunks = g.k / 8;
  const bool live = column < g.n;
  const auto* weights =
      reinterpret_cast<const uint4*>(g.b) + static_cast<std::int64_t>(live ? column : 0) * chunks;
  const auto* rows = reinterpret_cast<const uint4*>(g.a);
  uint4 w[kLoads];
  const auto read_weights = [&](int first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int chunk = first + i * 32 + lane;
      w[i] = chunk < chunks ? __ldg(weights + chunk) : make_uint4(0, 0, 0, 0);
    }
  };
  read_weights(0);
  const float bias = g.bias[live ? column : 0];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  if (!live) return;

  float sum[kSkinnyRows][2] = {};
  for (int first = 0; first < chunks; first += kChunksAtOnce) {
    if (first > 0) read_weights(first);
#pragma unroll
    for (int m = 0; m < kSkinnyRows; ++m) {
      if (m >= g.m) break;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int chunk = first + i * 32 + lane;
        if (chunk < chunks) multiply_add(rows[m * chunks + chunk], w[i], sum[m][0], sum[m][1]);
      }
    }
  }
  float result = 0;  // of row `lane`
#pragma unroll
  for (int m = 0; m < kSkinnyRows; ++m) {
    float total = sum[m][0] + sum[m][1];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) total += __shfl_xor_sync(0xFFFFFFFFU, total, mask);
    if (lane == m) result = total;
  }
  if (lane >= g.m) return;
  float v = g.alpha * result + bias;
  v = v < g.low ? g.low : v;  // comparisons, not fminf: a NaN stays one
  v = v > g.high ? g.high : v;
  const std::int64_t at = static_cast<std::int64_t>(lane) * g.n + column;
  if (g.y_half) {
    static_cast<__half*>(g.y)[at] = __float2half_rn(v);
  } else {
    static_cast<float*>(g.y)[at] = v;
  }
}

}  // namespace

cudaError_t skinny_gemm_overlaps(bool& result) {
  return can_overlap(reinterpret_cast<const void*>(&skinny_gemm), result);
}

cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream) {
  const dim3 grid((static_cast<unsigned>(gemm.n) + kWarps - 1) / kWarps);
  return launch_kernel(skinny_gemm, {grid, dim3(kWarps * 32), 0, gemm.overlap}, stream, gemm);
}

}  // namespace pipit::internal::cuda
