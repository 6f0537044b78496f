// The fp16 implicit-GEMM kernel: output positions x output channels, tensor cores, fp32 accumulation.
#pragma once

#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <utility>

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
  // Blocks that a multiprocessor is to hold, as far as its shared memory does (each takes 2 KiB more): bounding the
  // registers for more of them would make them spill for nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kFitting = (164 << 10) / (kShared + 2048);
#else
  static constexpr int kFitting = (228 << 10) / (kShared + 2048);
#endif
  static constexpr int kBlocks = BlocksPerProcessor < kFitting ? BlocksPerProcessor : kFitting;
  static constexpr int kGroups = Columns / 8;            // 16-byte groups of channels of a row of y
  static constexpr int kPass = kThreads / kGroups;       // rows that one pass of all threads reads or writes
  static constexpr int kShare = Rows / kPass / 2;        // passes over a tile that two blocks share
  static constexpr int kTileBytes = Rows * Columns * 2;  // of residual and y
  static_assert(kShare >= 1 && kTileBytes <= kStageBytes);

  /// 16-byte chunk at which group `group` of row `row` of y is kept: a warp's fragments fall into different banks.
  static __device__ __forceinline__ int tile_chunk(int row, int group) {
    return row * kGroups + (kGroups == 4 ? swizzled_chunk<4>(row, group) : group ^ (row & 7));
  }
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

/// v clamped and rounded once to half.
__device__ __forceinline__ __half finish_value(const ConvGemmArgs& args, float v) {
  v = v < args.low ? args.low : v;  // comparisons, not fminf: a NaN stays one
  v = v > args.high ? args.high : v;
  return __float2half_rn(v);
}

__device__ __forceinline__ std::int64_t output_offset(const ConvGemmArgs& args, int row, int column) {
  return static_cast<std::int64_t>(row) * args.shape.out_c + column;
}

/// Eight neighbouring channels: sum (bias included) + residual, clamped. `held` is the residual where out_c is a
/// multiple of 8.
__device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const float (&sum)[8], uint4 held,
                                                int row, int column) {
  const int out_c = args.shape.out_c;
  const std::int64_t at = output_offset(args, row, column);
  const auto* residual = reinterpret_cast<const __half*>(args.residual);
  auto* y = reinterpret_cast<__half*>(args.y);
  if (out_c % 8 == 0) {
    __align__(16) __half r[8];
    *reinterpret_cast<uint4*>(r) = held;
#pragma unroll
    for (int j = 0; j < 8; ++j) r[j] = finish_value(args, sum[j] + __half2float(r[j]));
    *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<const uint4*>(r);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (column + j >= out_c) break;
      y[at + j] = finish_value(args, sum[j] + (residual != nullptr ? __half2float(residual[at + j]) : 0.0F));
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

/// The rows of a tile that this block finishes when a cluster shares its depth: every args.splits-th pass.
template <typename T>
struct ConvGemmShare {
  const ConvGemmArgs& args;
  int first_row, first_column;
  int column = static_cast<int>(threadIdx.x) % T::kGroups * 8;  // a thread stays with its eight channels
  uint4 held[T::kShare];

  __device__ __forceinline__ ConvGemmShare(const ConvGemmArgs& a, int row, int column0)
      : args(a), first_row(row), first_column(column0) {}
  __device__ __forceinline__ int row(int i) const {
    return (i * args.splits + static_cast<int>(blockIdx.y)) * T::kPass +
           static_cast<int>(threadIdx.x) / T::kGroups;
  }
  __device__ __forceinline__ bool inside(int i) const {
    return row(i) < T::kRows && first_row + row(i) < args.rows && first_column + column < args.shape.out_c;
  }

  /// Starts reading the residual, long before it is needed.
  __device__ __forceinline__ void fetch_residual() {
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      held[i] = make_uint4(0, 0, 0, 0);
      if (args.residual == nullptr || args.shape.out_c % 8 != 0 || !inside(i)) continue;
      held[i] =
          *reinterpret_cast<const uint4*>(reinterpret_cast<const __half*>(args.residual) +
                                          output_offset(args, first_row + row(i), first_column + column));
    }
  }

  /// Adds up the sums that the cluster's blocks have in `tile` and writes y.
  __device__ __forceinline__ void write(float* tile, const float* bias) const {
#if __CUDA_ARCH__ >= 900
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    constexpr int kAtOnce = 4;  // loads from other blocks that are under way together
    float sum[T::kShare][8];
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = bias[column + j];
      if (!inside(i)) continue;
      float* from = tile + row(i) * T::kSumStride + column;
      // Always in the same order, so that the result does not depend on timing.
      for (int rank = 0; rank < args.splits; rank += kAtOnce) {
        float4 part[kAtOnce][2];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          part[u][0] = part[u][1] = make_float4(0, 0, 0, 0);
          if (rank + u >= args.splits) continue;
          const float4* other = reinterpret_cast<const float4*>(cluster.map_shared_rank(from, rank + u));
          part[u][0] = other[0];
          part[u][1] = other[1];
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          sum[i][0] += part[u][0].x, sum[i][1] += part[u][0].y, sum[i][2] += part[u][0].z;
          sum[i][3] += part[u][0].w, sum[i][4] += part[u][1].x, sum[i][5] += part[u][1].y;
          sum[i][6] += part[u][1].z, sum[i][7] += part[u][1].w;
        }
      }
    }
    // Nobody leaves while others still read its sums.
    auto token = cluster.barrier_arrive();
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      if (inside(i)) finish_channels(args, sum[i], held[i], first_row + row(i), first_column + column);
    }
    cluster.barrier_wait(std::move(token));
#endif
  }
};

/// Copies the tile of the residual to `to`, zeros beyond its edges. out_c is a multiple of 8.
template <typename T>
__device__ __forceinline__ void load_residual(const ConvGemmArgs& args, std::uint32_t to, int first_row,
                                              int first_column) {
  const auto* residual = reinterpret_cast<const __half*>(args.residual);
  const int group = static_cast<int>(threadIdx.x) % T::kGroups;
  const int column = first_column + group * 8;
#pragma unroll
  for (int i = 0; i < T::kRows / T::kPass; ++i) {
    const int row = static_cast<int>(threadIdx.x) / T::kGroups + i * T::kPass;
    const bool valid = first_row + row < args.rows && column < args.shape.out_c;
    ptx::copy_async<16>(to + T::tile_chunk(row, group) * 16,
                        valid ? residual + output_offset(args, first_row + row, column) : residual, valid);
  }
}

/// Writes the tile when its block has the whole depth: through `tile` in shared memory, which holds the residual
/// where `staged`, so that the stores are whole rows of 16 bytes.
template <typename T>
__device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const ConvGemmFragments<T>& fragments,
                                           std::uint8_t* tile, const float* bias, bool staged, int first_row,
                                           int first_column) {
  using F = ConvGemmFragments<T>;
  const int out_c = args.shape.out_c;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* residual = reinterpret_cast<const __half*>(args.residual);
#pragma unroll
  for (int i = 0; i < F::kM; ++i) {
#pragma unroll
    for (int j = 0; j < F::kN; ++j) {
      const int column = F::first_column(warp) + j * 8 + lane % 4 * 2;
      const float2 b = *reinterpret_cast<const float2*>(bias + column);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = F::first_row(warp) + i * F::kRowStep + lane / 4 + h * 8;
        auto* at = reinterpret_cast<__half2*>(tile + T::tile_chunk(row, column / 8) * 16 + lane % 4 * 4);
        float2 v = make_float2(fragments.sums[i][j][h * 2] + b.x, fragments.sums[i][j][h * 2 + 1] + b.y);
        if (staged) {
          const float2 r = __half22float2(*at);
          v.x += r.x, v.y += r.y;
        } else if (residual != nullptr && first_row + row < args.rows) {
          const std::int64_t from = output_offset(args, first_row + row, first_column + column);
          if (first_column + column < out_c) v.x += __half2float(residual[from]);
          if (first_column + column + 1 < out_c) v.y += __half2float(residual[from + 1]);
        }
        *at = __halves2half2(finish_value(args, v.x), finish_value(args, v.y));
      }
    }
  }
  __syncthreads();
  auto* y = reinterpret_cast<__half*>(args.y);
  const int group = static_cast<int>(threadIdx.x) % T::kGroups;
  const int column = first_column + group * 8;
  if (column >= out_c) return;
#pragma unroll
  for (int i = 0; i < T::kRows / T::kPass; ++i) {
    const int row = static_cast<int>(threadIdx.x) / T::kGroups + i * T::kPass;
    if (first_row + row >= args.rows) break;
    const uint4 chunk = *reinterpret_cast<const uint4*>(tile + T::tile_chunk(row, group) * 16);
    __half* to = y + output_offset(args, first_row + row, column);
    if (out_c % 8 == 0) {
      *reinterpret_cast<uint4*>(to) = chunk;
    } else {
      const std::uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (column + c < out_c)
          to[c] = __ushort_as_half(static_cast<unsigned short>(words[c / 2] >> c % 2 * 16));
      }
    }
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
  __shared__ float bias[T::kColumns];
  for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads) bias[c] = args.bias[first_column + c];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  // The residual takes the buffer of the step behind the last, as soon as that one is free.
  const bool staged = args.residual != nullptr && args.splits == 1 && args.shape.out_c % 8 == 0;
  const int tile_stage = steps % T::kStages;
  const auto load_left = [&](int step, int stage) {
    if (step < steps) {
      loader.load_left(base + stage * T::kStageBytes);
    } else if (step == steps && staged) {
      load_residual<T>(args, base + stage * T::kStageBytes, first_row, first_column);
    }
  };
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    load_left(s, s);
    ptx::commit_copies();
  }
  ConvGemmShare<T> share(args, first_row, first_column);
  if (args.splits > 1) share.fetch_residual();

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
    load_left(step + T::kStages - 1, next_stage);
    if (step + T::kStages - 1 < steps) loader.load_right(base + next_stage * T::kStageBytes);
    ptx::commit_copies();
    fragments.finish();
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == T::kStages ? 0 : next_stage + 1;
  }
  if (args.splits == 1) {
    // The last products read other stages, so the tile's may be written at once.
    if (staged) {
      ptx::wait_copies<0>();
      __syncthreads();
    }
    write_tile<T>(args, fragments, shared + tile_stage * T::kStageBytes, bias, staged, first_row,
                  first_column);
  } else {
    // The sums go through shared memory, within reach of the cluster.
    __syncthreads();
    float* tile = reinterpret_cast<float*>(shared);
    fragments.store(tile, warp);
    share.write(tile, bias);
  }
}

}  // namespace pipit::cuda
