// The element-wise functions of fp16 convolutions, of values in registers.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/device/half_math.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::cuda {

namespace half_function {

/// 1 / (1 + 2^x), off by at most 2^-21 of it, and what x is off: ex2.approx is within 2^-22, rcp.approx within 1 ulp,
/// and what .ftz makes zero matters to neither the sum nor a half. 2^x may be infinite, which gives 0.
__device__ __forceinline__ float logistic(float x) {
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1 + power));
  return result;
}

}  // namespace half_function

/// v[i] = f(v[i]), for results that are rounded to half, by up to 2^-11 of them. A logistic gate is off by less than
/// 2^-17 of itself wherever the half is not zero: then the gate is above 2^-41 (a half ends at 2^-25, x at 2^16), and
/// |slope x| < 41 is off by 2^-23 of itself. NaN stays NaN, and no finite v[i] becomes one. The branch is the same for
/// all threads and taken once for many values, so that their instructions overlap.
template <int Count>
__device__ __forceinline__ void apply(const HalfFunction& f, float (&v)[Count]) {
  switch (f.gate) {
    case HalfGate::logistic:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * half_function::logistic(f.slope * x);
      break;
    case HalfGate::linear:
#pragma unroll
      for (float& x : v) x = (f.times_x ? x : 1.0F) * clamp_value(fmaf(f.slope, x, f.offset), 0, 1);
      break;
    default:
#pragma unroll
      for (float& x : v) x = x < 0 ? f.slope * x : x;
  }
}

/// v[i] = f(min(max(v[i], low), high)).
template <int Count>
__device__ __forceinline__ void apply_clamped(const HalfFunction& f, float low, float high,
                                              float (&v)[Count]) {
#pragma unroll
  for (float& x : v) x = clamp_value(x, low, high);
  apply(f, v);
}

// From sums to y in fp16: bias, residual, clamp and a function in float, one rounding.

/// v clamped and rounded once to half.
__device__ __forceinline__ __half finish_value(const ConvGemmArgs& args, float v) {
  v = v < args.low ? args.low : v;  // comparisons, not fminf: a NaN stays one
  v = v > args.high ? args.high : v;
  return __float2half_rn(v);
}

/// Function: ConvGemmArgs::function is computed, in kernels of its own: nothing but the size of what they do not run
/// makes kernels that compute little slower.
template <typename T, bool Function>
struct HalfEpilogue {
  static constexpr bool kAverages = false;
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
    if constexpr (Function) return finish_function(args, sum, held, at, out_c - column);
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
    const auto row_of = [&](int i, int h) { return F::first_row(warp) + i * F::kRowStep + lane / 4 + h * 8; };
    const auto column_of = [&](int j) { return F::first_column(warp) + j * 8 + lane % 4 * 2; };
    const auto place_of = [&](int row, int column) {
      return reinterpret_cast<__half2*>(tile + T::tile_chunk(row, column / 8) * 16 + lane % 4 * 4);
    };
    const auto with_residual = [&](float2 v, const __half2* at, int row, int column) {
      if (staged) {
        const float2 r = __half22float2(*at);
        v.x += r.x, v.y += r.y;
      } else if (residual != nullptr && first_row + row < args.rows) {
        const std::int64_t from = output_offset(args, first_row + row, first_column + column);
        if (first_column + column < out_c) v.x += __half2float(residual[from]);
        if (first_column + column + 1 < out_c) v.y += __half2float(residual[from + 1]);
      }
      return v;
    };
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
      float values[2][F::kN * 2];  // of the function
#pragma unroll
      for (int j = 0; j < F::kN; ++j) {
        const int column = column_of(j);
        const float2 b = *reinterpret_cast<const float2*>(columns.bias + column);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = row_of(i, h);
          __half2* at = place_of(row, column);
          const float(&sums)[4] = fragments.sums[i][j];
          const float2 v =
              with_residual(make_float2(sums[h * 2] + b.x, sums[h * 2 + 1] + b.y), at, row, column);
          if constexpr (Function) {
            values[h][j * 2] = v.x, values[h][j * 2 + 1] = v.y;
          } else {
            *at = __halves2half2(finish_value(args, v.x), finish_value(args, v.y));
          }
        }
      }
      if constexpr (Function) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          apply_clamped(args.function, args.low, args.high, values[h]);
#pragma unroll
          for (int j = 0; j < F::kN; ++j) {
            *place_of(row_of(i, h), column_of(j)) = __floats2half2_rn(values[h][j * 2], values[h][j * 2 + 1]);
          }
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

 private:
  /// finish_channels() with the function. left: channels from the first of the eight on.
  static __device__ __forceinline__ void finish_function(const ConvGemmArgs& args, const float (&sum)[8],
                                                         uint4 held, std::int64_t at, int left) {
    const auto* residual = reinterpret_cast<const __half*>(args.residual);
    auto* y = reinterpret_cast<__half*>(args.y);
    const bool whole = args.shape.out_c % 8 == 0;
    __align__(16) __half r[8];
    *reinterpret_cast<uint4*>(r) = held;
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = sum[j];
      if (whole) {
        v[j] += __half2float(r[j]);
      } else if (residual != nullptr && j < left) {
        v[j] += __half2float(residual[at + j]);
      }
    }
    apply_clamped(args.function, args.low, args.high, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) r[j] = __float2half_rn(v[j]);
    if (whole) {
      *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<const uint4*>(r);
      return;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j < left) y[at + j] = r[j];
    }
  }
};

}  // namespace pipit::cuda
