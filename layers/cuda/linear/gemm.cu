#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/linear/gemm.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kDepth = 16;  // of k, per step
constexpr int kEach = 4;    // rows and columns of a thread
constexpr int kSide = kTile / kEach;
constexpr int kThreads = kSide * kSide;

template <typename T, typename D>
__global__ void __launch_bounds__(kThreads)
    gemm_kernel(SimpleGemm g, const T* a, const T* b, Addend addend, D* d, std::int64_t row_tiles) {
  // One column of padding keeps the stores of a transposed tile out of each other's banks.
  __shared__ float a_tile[kDepth][kTile + 1];
  __shared__ float b_tile[kDepth][kTile + 1];
  const int tx = static_cast<int>(threadIdx.x) % kSide;
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x) % row_tiles * kTile;
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x) / row_tiles * kTile;

  for (std::int64_t batch = blockIdx.y; batch < g.batch; batch += gridDim.y) {
    const T* a_matrix = a + batch * g.a_step;
    const T* b_matrix = b + batch * g.b_step;
    float sum[kEach][kEach] = {};
    for (std::int64_t k0 = 0; k0 < g.k; k0 += kDepth) {
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
        // Neighbouring threads walk along whichever direction is dense.
        const int am = g.a_column == 1 ? i / kDepth : i % kTile;
        const int ak = g.a_column == 1 ? i % kDepth : i / kTile;
        const bool a_inside = m0 + am < g.m && k0 + ak < g.k;
        a_tile[ak][am] = a_inside ? load(a_matrix[(m0 + am) * g.a_row + (k0 + ak) * g.a_column]) : 0.0F;
        const int bn = g.b_row == 1 ? i / kDepth : i % kTile;
        const int bk = g.b_row == 1 ? i % kDepth : i / kTile;
        const bool b_inside = n0 + bn < g.n && k0 + bk < g.k;
        b_tile[bk][bn] = b_inside ? load(b_matrix[(k0 + bk) * g.b_row + (n0 + bn) * g.b_column]) : 0.0F;
      }
      __syncthreads();
      for (int k = 0; k < kDepth; ++k) {
        for (int i = 0; i < kEach; ++i) {
          for (int j = 0; j < kEach; ++j) sum[i][j] += a_tile[k][ty + i * kSide] * b_tile[k][tx + j * kSide];
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        const std::int64_t m = m0 + ty + i * kSide;
        const std::int64_t n = n0 + tx + j * kSide;
        if (m >= g.m || n >= g.n) continue;
        float value = g.alpha * sum[i][j];
        if (addend.data != nullptr) {
          value += addend.scale *
                   load(static_cast<const D*>(addend.data)[m * addend.row_step + n * addend.column_step]);
        }
        d[batch * g.m * g.n + m * g.n + n] = store<D>(clamp_value(value, g.clamp.low, g.clamp.high));
      }
    }
  }
}

template <typename T, typename D>
void launch(const SimpleGemm& g, const void* a, const void* b, const Addend& addend, void* d,
            cudaStream_t stream) {
  const std::int64_t row_tiles = (g.m + kTile - 1) / kTile;
  const std::int64_t tiles = row_tiles * ((g.n + kTile - 1) / kTile);
  if (tiles == 0 || g.batch == 0) return;
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>(std::min<std::int64_t>(g.batch, 65535)));
  gemm_kernel<<<grid, kThreads, 0, stream>>>(g, static_cast<const T*>(a), static_cast<const T*>(b), addend,
                                             static_cast<D*>(d), row_tiles);
  check_launch("simple_gemm");
}

}  // namespace

void simple_gemm(const SimpleGemm& gemm, DType type, DType output, const void* a, const void* b,
                 const Addend& addend, void* d, cudaStream_t stream) {
  if (type == DType::f16 && output == DType::f16) {
    launch<__half, __half>(gemm, a, b, addend, d, stream);
  } else if (type == DType::f16) {
    launch<__half, float>(gemm, a, b, addend, d, stream);
  } else if (type == DType::bf16 && output == DType::bf16) {
    launch<__nv_bfloat16, __nv_bfloat16>(gemm, a, b, addend, d, stream);
  } else if (type == DType::bf16) {
    launch<__nv_bfloat16, float>(gemm, a, b, addend, d, stream);
  } else {
    launch<float, float>(gemm, a, b, addend, d, stream);
  }
}

namespace {

constexpr int kWarps = 4;                   // of a block, a column each
constexpr int kLoads = 8;                   // 16-byte loads of a lane that are in flight together
constexpr int kChunksAtOnce = 32 * kLoads;  // chunks of eight halves that a warp reads at once

template <typename Element>
__device__ __forceinline__ void multiply_add(const uint4& a, const uint4& b, float& even, float& odd) {
  const unsigned x[4] = {a.x, a.y, a.z, a.w};
  const unsigned w[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 p = to_floats<Element>(x[i]);
    const float2 q = to_floats<Element>(w[i]);
    even = fmaf(p.x, q.x, even);
    odd = fmaf(p.y, q.y, odd);
  }
}

// A warp per column: its lanes share k, each reading every 32nd chunk of eight.
template <typename Element>
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
        if (chunk < chunks) multiply_add<Element>(rows[m * chunks + chunk], w[i], sum[m][0], sum[m][1]);
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
    static_cast<Element*>(g.y)[at] = store<Element>(v);
  } else {
    static_cast<float*>(g.y)[at] = v;
  }
}

}  // namespace

cudaError_t skinny_gemm_overlaps(bool& result) {
  return can_overlap(reinterpret_cast<const void*>(&skinny_gemm<__half>), result);
}

cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream) {
  const dim3 grid((static_cast<unsigned>(gemm.n) + kWarps - 1) / kWarps);
  return launch_kernel(gemm.bf16 ? skinny_gemm<__nv_bfloat16> : skinny_gemm<__half>,
                       {grid, dim3(kWarps * 32), 0, gemm.overlap}, stream, gemm);
}

}  // namespace pipit::internal::cuda
