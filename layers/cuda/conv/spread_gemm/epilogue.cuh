// From sums to y in "spread_gemm", four neighbouring channels of a position at a time: halves.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

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
  /// The constants of four channels.
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

// From sums to y in "spread_gemm", four neighbouring channels of a position at a time: INT8.

/// Int8Epilogue of four neighbouring channels. y is stored as ConvGemmArgs says; LooksUp: i8 through a table.
template <bool LooksUp>
struct SpreadInt8 {
  using Int8 = Int8Epilogue<ConvGemmTraits<kSpreadRows, kSpreadColumns, 2, 2, 4, 8, 4, std::int32_t>,
                            LooksUp ? Int8Result::looked_up : Int8Result::bytes>;
  struct Columns {
    typename Int8::Columns int8;
    __align__(16) int bias[kSpreadColumns];  // in the order of packed_channel, as multipliers are
  };
  using Four = std::uint32_t;

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    const auto copy = [](auto* to, const void* from, int first) {
      ptx::copy_async<16>(ptx::shared_address(to + first),
                          static_cast<const std::decay_t<decltype(*to)>*>(from) + first, true);
    };
    const int quad = static_cast<int>(threadIdx.x);
    if (quad < kSpreadColumns / 4) {
      copy(columns.int8.multiplier, args.multipliers + first_column, quad * 4);
      copy(columns.bias, static_cast<const int*>(args.bias) + first_column, quad * 4);
    }
    if constexpr (Int8::kLooksUp) {
      if (quad < static_cast<int>(sizeof columns.int8.table) / 16)
        copy(columns.int8.table, args.table, quad * 16);
    }
  }
  static __device__ __forceinline__ Four fetch_residual(const ConvGemmArgs& args, bool finishes, int at) {
    if (!finishes || args.residual == nullptr || args.shape.out_c % 4 != 0) return 0;
    return __ldcg(reinterpret_cast<const Four*>(static_cast<const std::uint8_t*>(args.residual) + at));
  }
  struct Constants {
    int first[4];  // the bias, and kMagicBits where sums are small
    float multiplier[4];
  };
  /// The constants of four channels.
  static __device__ __forceinline__ Constants constants(const ConvGemmArgs& args, const Columns& columns,
                                                        int channel) {
    Constants c;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = Int8::column_of(channel & ~7, (channel & 4) + j);
      c.first[j] = columns.bias[column] + (args.small ? kMagicBits : 0);
      c.multiplier[j] = columns.int8.multiplier[column];
    }
    return c;
  }
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, const Columns& columns,
                                                const Constants& constants, const int (&sum)[4], Four held,
                                                int at, int left) {
    const bool whole = args.shape.out_c % 4 == 0;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v[j] = Int8::scaled(args, sum[j] + constants.first[j], constants.multiplier[j]);
    if (whole && args.residual != nullptr) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        v[j] = Int8::with_residual(args, v[j], static_cast<float>(static_cast<signed char>(held >> j * 8)));
    }
    const typename Int8::Bounds bounds{args.low, args.high};
    if (LooksUp || args.stored == ConvStored::i8) {
      if (whole)
        return Int8::template store_run<ConvStored::i8>(args, columns.int8, bounds, v, at, args.small);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) Int8::store_one(args, columns.int8, v[j], at + j);
      }
    } else if (whole && args.stored == ConvStored::f16) {
      Int8::template store_run<ConvStored::f16>(args, columns.int8, bounds, v, at, false);
    } else if (whole) {
      Int8::template store_run<ConvStored::f32>(args, columns.int8, bounds, v, at, false);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) store_real(args, bounds, v[j], at + j);
      }
    }
  }

 private:
  static __device__ __forceinline__ void store_real(const ConvGemmArgs& args,
                                                    const typename Int8::Bounds& bounds, float v, int at) {
    if (args.residual != nullptr)
      v = Int8::with_residual(args, v,
                              static_cast<float>(static_cast<const signed char*>(args.residual)[at]));
    if (args.stored == ConvStored::f16) {
      static_cast<__half*>(args.y)[at] = __float2half_rn(bounds.clamped(v));
    } else {
      static_cast<float*>(args.y)[at] = bounds.clamped(v);
    }
  }
};

}  // namespace pipit::internal::cuda
