// The epilogue of INT8 products with scales that are found at run time: sums go from registers to y, in the order of
// layers/ops/dynamic_int8.h.
#pragma once

#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

template <typename T>
struct DynamicEpilogue {
  static constexpr bool kAverages = false;
  using F = ConvGemmFragments<T>;
  using Eight = uint2;  // not read: ConvGemmArgs::residual is null
  /// What belongs to the tile's columns, in shared memory.
  struct Columns {
    float multiplier[T::kColumns];
    float bias[T::kColumns];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads) {
      columns.multiplier[c] = args.multipliers[first_column + c];
      columns.bias[c] = static_cast<const float*>(args.bias)[first_column + c];
    }
  }
  static __device__ __forceinline__ void start(const ConvGemmArgs&, F&, int, int) {}
  static __device__ __forceinline__ int first_sum(const Columns&, int) { return 0; }
  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs&) { return false; }

  /// Eight neighbouring channels, where a cluster has added up the sums.
  static __device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const Columns& columns,
                                                         const int (&sum)[8], uint2, int row,
                                                         int first_column, int tile_channel) {
    const float scale = scale_of(args, row);
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      // Where packed_channel() has put the channel.
      const int column = (tile_channel & ~31) + j / 2 * 8 + (tile_channel >> 3 & 3) * 2 + j % 2;
      v[j] = value(sum[j], columns.multiplier[column], scale, columns.bias[column]);
    }
    finish(args, row, first_column + tile_channel, v);
  }

  /// Writes the tile when its block has the whole depth.
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    std::uint8_t*, const Columns& columns, bool,
                                                    int first_row, int first_column) {
    // Fragments whose columns are a lane's neighbouring channels.
    constexpr int kTogether = F::kN % 4 == 0 ? 4 : 2;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int column = F::first_column(warp) + lane % 4 * 2, channel = first_column + packed_channel(column);
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + F::first_row(warp) + i * F::kRowStep + lane / 4 + h * 8;
        if (row >= args.rows) continue;
        const float scale = scale_of(args, row);
#pragma unroll
        for (int block = 0; block < F::kN / kTogether; ++block) {
          float v[kTogether * 2];
#pragma unroll
          for (int u = 0; u < kTogether; ++u) {
            const int j = block * kTogether + u;
            const float2 m = *reinterpret_cast<const float2*>(columns.multiplier + column + j * 8);
            const float2 b = *reinterpret_cast<const float2*>(columns.bias + column + j * 8);
            v[u * 2] = value(fragments.sums[i][j][h * 2], m.x, scale, b.x);
            v[u * 2 + 1] = value(fragments.sums[i][j][h * 2 + 1], m.y, scale, b.y);
          }
          finish(args, row, channel + block * kTogether * 8, v);
        }
      }
    }
  }

 private:
  template <typename Element, int Count>
  struct alignas(Count * sizeof(Element) < 16 ? Count * sizeof(Element) : 16) Run {
    Element v[Count];
  };

  static __device__ __forceinline__ float scale_of(const ConvGemmArgs& args, int row) {
    return args.dynamic.scales[args.dynamic.rows.divide(row)];
  }
  static __device__ __forceinline__ float value(int sum, float multiplier, float scale, float bias) {
    return __fadd_rn(__fmul_rn(__fmul_rn(__int2float_rn(sum), multiplier), scale), bias);
  }

  /// Adds the residual of neighbouring channels and stores them.
  template <int Count>
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, int row, int channel,
                                                float (&v)[Count]) {
    args.stored == StoredType::f16 ? finish_as<__half>(args, row, channel, v)
                                   : finish_as<float>(args, row, channel, v);
  }
  template <typename Element, int Count>
  static __device__ __forceinline__ void finish_as(const ConvGemmArgs& args, int row, int channel,
                                                   float (&v)[Count]) {
    const int left = args.shape.out_c - channel;
    if (left <= 0) return;
    const std::int64_t at = output_offset(args, row, channel);
    const auto* residual = static_cast<const Element*>(args.dynamic.residual);
    auto* y = static_cast<Element*>(args.y);
    if (args.shape.out_c % 8 == 0) {
      using Neighbours = Run<Element, Count>;
      Neighbours run = {};
      if (residual != nullptr) run = *reinterpret_cast<const Neighbours*>(residual + at);
#pragma unroll
      for (int k = 0; k < Count; ++k) {
        if (residual != nullptr) v[k] = __fadd_rn(v[k], cuda::load(run.v[k]));
        run.v[k] = store<Element>(clamp_value(v[k], args.low, args.high));
      }
      *reinterpret_cast<Neighbours*>(y + at) = run;
      return;
    }
#pragma unroll
    for (int k = 0; k < Count; ++k) {
      if (k >= left) break;
      if (residual != nullptr) v[k] = __fadd_rn(v[k], cuda::load(residual[at + k]));
      y[at + k] = store<Element>(clamp_value(v[k], args.low, args.high));
    }
  }
};

}  // namespace pipit::internal::cuda
