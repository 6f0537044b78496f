// The fp16 implicit-GEMM kernel: output positions x output channels, tensor cores, fp32 accumulation.
#pragma once

#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "layers/cuda/async_ptx.cuh"
#include "layers/cuda/conv_gemm_launch.h"
#include "layers/cuda/warpgroup_mma.cuh"

namespace pipit::cuda {

/// Sizes of one instance. Vector: channels that x guarantees to be together, 8, or 4 for narrow images.
template <int Rows, int Columns, int WarpRows, int WarpColumns, int Stages, int Vector,
          int BlocksPerProcessor>
struct ConvGemmTraits {
  static constexpr int kRows = Rows, kColumns = Columns, kStages = Stages, kVector = Vector;
  static constexpr int kWarpRows = WarpRows, kWarpColumns = WarpColumns;
  static constexpr int kThreads = WarpRows * WarpColumns * 32;
  static constexpr int kChunks = kTileDepth / 8;       // 16-byte chunks of a shared-memory row
  static constexpr int kRowStep = kThreads / kChunks;  // rows that one pass of all threads copies
  static constexpr int kRowBytes = kTileDepth * 2;
  static constexpr int kStageBytes = (Rows + Columns) * kRowBytes;
  static constexpr int kSumStride =
      Columns + 8;  // floats; 8 more keep the stores of a warp in different banks
  static constexpr int kSumBytes = Rows * kSumStride * 4;
  static constexpr int kShared = Stages * kStageBytes > kSumBytes ? Stages* kStageBytes : kSumBytes;
  // Blocks that a multiprocessor is to hold, as far as its shared memory does (each takes 1 KiB more): bounding the
  // registers for more of them would make them spill for nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kFitting = (164 << 10) / (kShared + 1024);
#else
  static constexpr int kFitting = (228 << 10) / (kShared + 1024);
#endif
  static constexpr int kBlocks = BlocksPerProcessor < kFitting ? BlocksPerProcessor : kFitting;
};

/// Copies the tile's next step along k from x and the weights to shared memory.
template <typename T>
struct ConvGemmLoader {
  static constexpr int kRowLoads = T::kRows / T::kRowStep;
  static constexpr int kColumnLoads = T::kColumns / T::kRowStep;
  static constexpr int kParts = 8 / T::kVector;  // copies that make up one chunk
  static_assert(T::kRows % T::kRowStep == 0 && T::kColumns % T::kRowStep == 0);

  const ConvGemmArgs& args;
  int row = static_cast<int>(threadIdx.x) / T::kChunks;
  int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  int h[kRowLoads], w[kRowLoads], base[kRowLoads];
  DepthCursor cursor[kParts];
  int k;  // position along k of this thread's next chunk
  const __half* x = reinterpret_cast<const __half*>(args.x);
  const __half* weights;

  __device__ ConvGemmLoader(const ConvGemmArgs& a, int first_row, int first_column, int first_step)
      : args(a) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int m = first_row + row + i * T::kRowStep;
      const bool inside = m < args.rows;
      const PixelOrigin origin = pixel_origin(s, args.positions, args.out_width, inside ? m : 0);
      // Rows beyond the matrix read as padding.
      h[i] = inside ? origin.h : -(1 << 29);
      w[i] = origin.w;
      base[i] = ((origin.image * s.in_h + origin.h) * s.in_w + origin.w) * s.in_c;
    }
    k = first_step * kTileDepth + chunk * 8;
    place_cursors();
    weights = reinterpret_cast<const __half*>(args.weights) +
              static_cast<std::int64_t>(first_column + row) * args.depth + first_step * kTileDepth +
              chunk * 8;
  }

  __device__ __forceinline__ void place_cursors() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      cursor[p] = depth_cursor(args.shape, args.channels, args.kernel_width, k + p * T::kVector);
    }
  }

  /// The step's part of x.
  __device__ __forceinline__ void load_left(std::uint32_t stage) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      DepthCursor& at = cursor[p];
      const int dh = at.r * s.dilation_h;
      const int dw = at.s * s.dilation_w;
      const int offset = (dh * s.in_w + dw) * s.in_c + at.c;
      const bool live = at.r < s.kernel_h;
#pragma unroll
      for (int i = 0; i < kRowLoads; ++i) {
        const bool valid = live && static_cast<unsigned>(h[i] + dh) < static_cast<unsigned>(s.in_h) &&
                           static_cast<unsigned>(w[i] + dw) < static_cast<unsigned>(s.in_w);
        const int r = row + i * T::kRowStep;
        const std::uint32_t to =
            stage + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16 + p * T::kVector * 2;
        ptx::copy_async<T::kVector * 2>(to, valid ? x + (base[i] + offset) : x, valid);
      }
      if constexpr (T::kVector == 8) at.advance(s, kTileDepth);
    }
    if constexpr (T::kVector < 8) {
      // Sixteen taps to a step: dividing is shorter than walking.
      k += kTileDepth;
      place_cursors();
    }
  }

  /// The step's part of the weights.
  __device__ __forceinline__ void load_right(std::uint32_t stage) {
    const std::uint32_t right = stage + T::kRows * T::kRowBytes;
#pragma unroll
    for (int i = 0; i < kColumnLoads; ++i) {
      const int r = row + i * T::kRowStep;
      ptx::copy_async<16>(right + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16,
                          weights + static_cast<std::int64_t>(i * T::kRowStep) * args.depth, true);
    }
    weights += kTileDepth;
  }
};

/// sum (bias included) + residual, clamped, in fp32; eight neighbouring channels, each rounded once to half.
__device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const float (&sum)[8], int row,
                                                int column) {
  const int out_c = args.shape.out_c;
  const std::int64_t at = static_cast<std::int64_t>(row) * out_c + column;
  const auto* residual = reinterpret_cast<const __half*>(args.residual);
  auto* y = reinterpret_cast<__half*>(args.y);
  const auto finish = [&](int j, float addend) {
    float v = sum[j] + addend;
    v = v < args.low ? args.low : v;  // comparisons, not fminf: a NaN stays one
    v = v > args.high ? args.high : v;
    return __float2half_rn(v);
  };
  if (out_c % 8 == 0) {
    __align__(16) __half r[8];
    *reinterpret_cast<uint4*>(r) =
        residual != nullptr ? *reinterpret_cast<const uint4*>(residual + at) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 8; ++j) r[j] = finish(j, __half2float(r[j]));
    *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<const uint4*>(r);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (column + j >= out_c) break;
      y[at + j] = finish(j, residual != nullptr ? __half2float(residual[at + j]) : 0.0F);
    }
  }
}

/// Where a thread's accumulators lie in the tile: sums[i][j] is an m16n8 fragment.
template <typename T>
struct ConvGemmFragments {
#ifdef PIPIT_WARPGROUP_MMA
  // Four warps hold 64 rows and all columns.
  static constexpr int kM = T::kRows / 64 / (T::kThreads / 128);
  static constexpr int kN = T::kColumns / 8;
  static constexpr int kRowStep = 64;
  static __device__ int first_row(int warp) {
    return warp / 4 * (kM * 64) + warp % 4 * 16;
  }
  static __device__ int first_column(int) {
    return 0;
  }
#else
  static constexpr int kM = T::kRows / T::kWarpRows / 16;
  static constexpr int kN = T::kColumns / T::kWarpColumns / 8;
  static constexpr int kRowStep = 16;
  static __device__ int first_row(int warp) {
    return warp % T::kWarpRows * (T::kRows / T::kWarpRows);
  }
  static __device__ int first_column(int warp) {
    return warp / T::kWarpRows * (T::kColumns / T::kWarpColumns);
  }
  static_assert(kN % 2 == 0);
#endif
  float sums[kM][kN][4] = {};

  /// sums += left (rows x kTileDepth) * right (columns x kTileDepth), both in shared memory. Asynchronous on
  /// Hopper: finish() before the operands are overwritten or the sums are read.
  __device__ __forceinline__ void multiply_step(std::uint32_t left, std::uint32_t right, int warp) {
#ifdef PIPIT_WARPGROUP_MMA
    ptx::begin_products();
#pragma unroll
    for (int kk = 0; kk < kTileDepth / 16; ++kk) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int row = warp / 4 * (kM * 64) + i * 64;
        ptx::multiply_group(sums[i], ptx::matrix_descriptor(left + row * T::kRowBytes + kk * 32),
                            ptx::matrix_descriptor(right + kk * 32));
      }
    }
    ptx::end_products();
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int kk = 0; kk < kTileDepth / 16; ++kk) {
      std::uint32_t a[kM][4];
      std::uint32_t b[kN / 2][4];
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int r = first_row(warp) + i * 16 + (lane & 15);
        ptx::load_matrices(
            a[i], left + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, kk * 2 + (lane >> 4)) * 16);
      }
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) {
        const int r = first_column(warp) + j * 16 + (lane & 7) + (lane >> 4) * 8;
        ptx::load_matrices(
            b[j], right + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, kk * 2 + (lane >> 3 & 1)) * 16);
      }
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j)
          ptx::multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
#endif
  }

  __device__ __forceinline__ void finish() {
#ifdef PIPIT_WARPGROUP_MMA
    ptx::wait_products();
#endif
  }

  /// Writes the sums to tile [rows][kSumStride].
  __device__ __forceinline__ void store(float* tile, int warp) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        float* to = tile + (first_row(warp) + i * kRowStep + lane / 4) * T::kSumStride + first_column(warp) +
                    j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = make_float2(sums[i][j][0], sums[i][j][1]);
        *reinterpret_cast<float2*>(to + 8 * T::kSumStride) = make_float2(sums[i][j][2], sums[i][j][3]);
      }
    }
  }
};

/// Adds up the cluster's sums and writes this block's share of the tile's rows to y.
template <typename T>
__device__ __forceinline__ void write_tile(const ConvGemmArgs& args, float* tile, int first_row,
                                           int first_column) {
  namespace cg = cooperative_groups;
  constexpr int kGroups = T::kColumns / 8;  // a thread stays with its eight channels
  constexpr int kPass = T::kThreads / kGroups;
  const int column = static_cast<int>(threadIdx.x) % kGroups * 8;
  if (first_column + column >= args.shape.out_c) return;
  float bias[8];
#pragma unroll
  for (int j = 0; j < 8; j += 4) {
    const float4 b = *reinterpret_cast<const float4*>(args.bias + first_column + column + j);
    bias[j] = b.x, bias[j + 1] = b.y, bias[j + 2] = b.z, bias[j + 3] = b.w;
  }
  const int end = min(T::kRows, args.rows - first_row);
#pragma unroll 4
  for (int row = static_cast<int>(blockIdx.y) * kPass + threadIdx.x / kGroups; row < end;
       row += args.splits * kPass) {
    float sum[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] = bias[j];
    const auto add = [&](const float* from) {
      const float4 a = *reinterpret_cast<const float4*>(from);
      const float4 b = *reinterpret_cast<const float4*>(from + 4);
      sum[0] += a.x, sum[1] += a.y, sum[2] += a.z, sum[3] += a.w;
      sum[4] += b.x, sum[5] += b.y, sum[6] += b.z, sum[7] += b.w;
    };
    float* from = tile + row * T::kSumStride + column;
    if (args.splits > 1) {
#if __CUDA_ARCH__ >= 900
      // Always in the same order, so that the result does not depend on timing.
      for (int rank = 0; rank < args.splits; ++rank) add(cg::this_cluster().map_shared_rank(from, rank));
#endif
    } else {
      add(from);
    }
    finish_channels(args, sum, first_row + row, first_column + column);
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    conv_gemm(const __grid_constant__ ConvGemmArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const int warp = threadIdx.x / 32;
  const int row_tile = blockIdx.x / args.column_tiles;
  const int first_row = row_tile * T::kRows;
  const int first_column = (blockIdx.x - row_tile * args.column_tiles) * T::kColumns;
  const int split = blockIdx.y;
  const int first_step = args.steps * split / args.splits;
  const int steps = args.steps * (split + 1) / args.splits - first_step;

  ConvGemmLoader<T> loader(args, first_row, first_column, first_step);
  const std::uint32_t base = ptx::shared_address(shared);
  // Only the weights may be read before the kernel in front has finished.
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) loader.load_right(base + s * T::kStageBytes);
  }
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) loader.load_left(base + s * T::kStageBytes);
    ptx::commit_copies();
  }

  ConvGemmFragments<T> fragments;
  int stage = 0;
  int next_stage = T::kStages - 1;
  for (int step = 0; step < steps; ++step) {
    ptx::wait_copies<T::kStages - 2>();
#ifdef PIPIT_WARPGROUP_MMA
    ptx::publish_shared();
#endif
    __syncthreads();
    const std::uint32_t left = base + stage * T::kStageBytes;
    fragments.multiply_step(left, left + T::kRows * T::kRowBytes, warp);
    // Everybody has passed the barrier, so the stage before this one is free.
    if (step + T::kStages - 1 < steps) {
      loader.load_left(base + next_stage * T::kStageBytes);
      loader.load_right(base + next_stage * T::kStageBytes);
    }
    ptx::commit_copies();
    fragments.finish();
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == T::kStages ? 0 : next_stage + 1;
  }
  ptx::wait_copies<0>();
  __syncthreads();

  // The sums go through shared memory: whole rows for 16-byte stores, and within reach of the cluster.
  float* tile = reinterpret_cast<float*>(shared);
  fragments.store(tile, warp);
  namespace cg = cooperative_groups;
  if (args.splits > 1) {
#if __CUDA_ARCH__ >= 900
    cg::this_cluster().sync();
#endif
  } else {
    __syncthreads();
  }
  write_tile<T>(args, tile, first_row, first_column);
#if __CUDA_ARCH__ >= 900
  // Nobody leaves while others still read its sums.
  if (args.splits > 1) cg::this_cluster().sync();
#endif
}

}  // namespace pipit::cuda
