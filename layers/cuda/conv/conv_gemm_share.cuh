// What both epilogues of the implicit-GEMM kernel share: the residual's way in, and tiles whose depth a cluster's
// blocks have between them.
#pragma once

#include <cooperative_groups.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_gemm_traits.cuh"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

/// Copies the tile of the residual to `to`, zeros beyond its edges. out_c is a multiple of
/// T::kGroup.
template <typename T>
__device__ __forceinline__ void load_residual(const ConvGemmArgs& args, std::uint32_t to, int first_row,
                                              int first_column) {
  const auto* residual = static_cast<const std::byte*>(args.residual);
  const int group = static_cast<int>(threadIdx.x) % T::kGroups;
  const int column = first_column + group * T::kGroup;
#pragma unroll
  for (int i = 0; i < T::kRows / T::kPass; ++i) {
    const int row = static_cast<int>(threadIdx.x) / T::kGroups + i * T::kPass;
    const bool valid = first_row + row < args.rows && column < args.shape.out_c;
    ptx::copy_async<16>(
        to + T::tile_chunk(row, group) * 16,
        valid ? residual + output_offset(args, first_row + row, column) * T::kOutputBytes : residual, valid);
  }
}

/// The rows of a tile that this block finishes when a cluster shares its depth: every args.splits-th pass.
template <typename T, typename Epilogue>
struct ConvGemmShare {
  struct alignas(16) Quad {
    typename T::Sum v[4];
  };

  const ConvGemmArgs& args;
  int first_row, first_column;
  int column = static_cast<int>(threadIdx.x) % T::kShareGroups * 8;  // a thread stays with its eight channels
  typename Epilogue::Eight held[T::kShare];

  __device__ __forceinline__ ConvGemmShare(const ConvGemmArgs& a, int row, int column0)
      : args(a), first_row(row), first_column(column0) {}
  __device__ __forceinline__ int row(int i) const {
    return (i * args.splits + static_cast<int>(blockIdx.y)) * T::kSharePass +
           static_cast<int>(threadIdx.x) / T::kShareGroups;
  }
  __device__ __forceinline__ bool inside(int i) const {
    return row(i) < T::kRows && first_row + row(i) < args.rows && first_column + column < args.shape.out_c;
  }

  /// Starts reading the residual, long before it is needed.
  __device__ __forceinline__ void fetch_residual() {
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      held[i] = {};
      if (args.residual == nullptr || args.shape.out_c % 8 != 0 || !inside(i)) continue;
      held[i] = *reinterpret_cast<const typename Epilogue::Eight*>(
          static_cast<const std::byte*>(args.residual) +
          output_offset(args, first_row + row(i), first_column + column) * T::kOutputBytes);
    }
  }

  /// Adds up the sums that the cluster's blocks have in `tile` and writes y.
  __device__ __forceinline__ void write(typename T::Sum* tile,
                                        const typename Epilogue::Columns& columns) const {
#if __CUDA_ARCH__ >= 900
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    constexpr int kAtOnce = 4;  // loads from other blocks that are under way together
    typename T::Sum sum[T::kShare][8];
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = Epilogue::first_sum(columns, column + j);
      if (!inside(i)) continue;
      auto* from = tile + row(i) * T::kSumStride + column;
      // Always in the same order, so that the result does not depend on timing.
      for (int rank = 0; rank < args.splits; rank += kAtOnce) {
        Quad part[kAtOnce][2];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const auto* other = rank + u < args.splits ? cluster.map_shared_rank(from, rank + u) : nullptr;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            part[u][r] = {};
            if (other != nullptr) part[u][r] = reinterpret_cast<const Quad*>(other)[r];
          }
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[i][j] += part[u][j / 4].v[j % 4];
        }
      }
    }
    // Nobody leaves while others still read its sums.
    auto token = cluster.barrier_arrive();
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      if (inside(i)) {
        Epilogue::finish_channels(args, columns, sum[i], held[i], first_row + row(i), first_column, column);
      }
    }
    cluster.barrier_wait(std::move(token));
#endif
  }
};

}  // namespace pipit::cuda
