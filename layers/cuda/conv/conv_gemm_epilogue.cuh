// From sums to y in fp16: bias, residual and clamp in float, one rounding.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/conv/conv_gemm_fragments.cuh"
#include "layers/cuda/conv/conv_gemm_share.cuh"

namespace pipit::cuda {

/// v clamped and rounded once to half.
__device__ __forceinline__ __half finish_value(const ConvGemmArgs& args, float v) {
  v = v < args.low ? args.low : v;  // comparisons, not fminf: a NaN stays one
  v = v > args.high ? args.high : v;
  return __float2half_rn(v);
}

template <typename T>
struct HalfEpilogue {
  using F = ConvGemmFragments<T>;
  using Eight = uint4;  // neighbouring channels of residual or y
  /// What belongs to the tile's columns, in shared memory.
  struct Columns {
    float bias[T::kColumns];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads)
      columns.bias[c] = static_cast<const float*>(args.bias)[first_column + c];
  }
  /// The sums' first values, before any product.
  static __device__ __forceinline__ void start(const ConvGemmArgs&, F&, int, int) {}
  static __device__ __forceinline__ float first_sum(const Columns& columns, int column) {
    return columns.bias[column];
  }
  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs& args) {
    return args.residual != nullptr && args.splits == 1 && args.shape.out_c % T::kGroup == 0;
  }

  /// Eight neighbouring channels: sum (bias included) + residual, clamped. `held` is the residual where out_c is a
  /// multiple of 8.
  static __device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const Columns&,
                                                         const float (&sum)[8], uint4 held, int row,
                                                         int first_column, int tile_column) {
    const int out_c = args.shape.out_c;
    const int column = first_column + tile_column;
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
        y[at + j] =
            finish_value(args, sum[j] + (residual != nullptr ? __half2float(residual[at + j]) : 0.0F));
      }
    }
  }

  /// Writes the tile when its block has the whole depth: through `tile` in shared memory, which holds the residual
  /// where `staged`, so that the stores are whole rows of 16 bytes.
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    std::uint8_t* tile, const Columns& columns, bool staged,
                                                    int first_row, int first_column) {
    const int out_c = args.shape.out_c;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* residual = reinterpret_cast<const __half*>(args.residual);
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int j = 0; j < F::kN; ++j) {
        const int column = F::first_column(warp) + j * 8 + lane % 4 * 2;
        const float2 b = *reinterpret_cast<const float2*>(columns.bias + column);
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
};

}  // namespace pipit::cuda
