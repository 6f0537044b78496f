// From sums to y in "spread_gemm", four neighbouring channels of a position at a time: halves.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/conv/conv_spread_launch.h"
#include "layers/cuda/conv/half_function.cuh"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

/// Bias, residual, clamp and a function in float, one rounding. Function: ConvGemmArgs::function is computed.
template <bool Function>
struct SpreadHalf {
  struct Columns {
    __align__(16) float bias[kSpreadColumns];
  };
  using Four = uint2;

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    const int c = static_cast<int>(threadIdx.x) * 4;
    if (c < kSpreadColumns)
      ptx::copy_async<16>(ptx::shared_address(columns.bias + c),
                          static_cast<const float*>(args.bias) + first_column + c, true);
  }
  static __device__ __forceinline__ Four fetch_residual(const ConvGemmArgs& args, bool finishes, int at) {
    if (!finishes || args.residual == nullptr || args.shape.out_c % 4 != 0) return {};
    return __ldcg(reinterpret_cast<const Four*>(static_cast<const __half*>(args.residual) + at));
  }
  struct Constants {
    float bias[4];
  };
  /// Of four channels.
  static __device__ __forceinline__ Constants constants(const ConvGemmArgs&, const Columns& columns,
                                                        int channel) {
    Constants c;
    *reinterpret_cast<float4*>(c.bias) = *reinterpret_cast<const float4*>(columns.bias + channel);
    return c;
  }
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, const Columns&,
                                                const Constants& constants, float (&v)[4], Four held, int at,
                                                int left) {
    const bool whole = args.shape.out_c % 4 == 0;
    const auto* residual = static_cast<const __half*>(args.residual);
    auto* y = static_cast<__half*>(args.y);
    __align__(8) __half r[4];
    *reinterpret_cast<Four*>(r) = held;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] += constants.bias[j];
      if (whole) {
        v[j] += __half2float(r[j]);
      } else if (residual != nullptr && j < left) {
        v[j] += __half2float(residual[at + j]);
      }
    }
    if constexpr (Function) {
      apply_clamped(args.function, args.low, args.high, v);
    } else {
#pragma unroll
      for (float& x : v) x = clamp_value(x, args.low, args.high);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = __float2half_rn(v[j]);
    if (whole) {
      *reinterpret_cast<Four*>(y + at) = *reinterpret_cast<const Four*>(r);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) y[at + j] = r[j];
      }
    }
  }
};

}  // namespace pipit::cuda
