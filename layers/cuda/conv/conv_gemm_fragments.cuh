// The products of the implicit-GEMM kernel and the registers that hold their sums.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/conv_gemm_traits.cuh"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/device/warpgroup_mma_int8.cuh"

namespace pipit::cuda {

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
  typename T::Sum sums[kM][kN][4] = {};

  /// sums += left (rows x kTileDepth units) * right (columns x kTileDepth units), both in shared memory. Asynchronous
  /// on Hopper: finish() before the operands are overwritten or the sums are read.
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

  /// Writes the sums to tile [rows][kSumStride], columns in the order of their channels.
  __device__ __forceinline__ void store(typename T::Sum* tile, int warp) const {
    struct alignas(8) Pair {
      typename T::Sum first, second;
    };
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int column = first_column(warp) + j * 8 + lane % 4 * 2;
        auto* to = tile + (first_row(warp) + i * kRowStep + lane / 4) * T::kSumStride +
                   (T::kInt8 ? packed_channel(column) : column);
        *reinterpret_cast<Pair*>(to) = {sums[i][j][0], sums[i][j][1]};
        *reinterpret_cast<Pair*>(to + 8 * T::kSumStride) = {sums[i][j][2], sums[i][j][3]};
      }
    }
  }
};

}  // namespace pipit::cuda
