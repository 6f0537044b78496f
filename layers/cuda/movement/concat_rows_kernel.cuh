// Rows side by side. A thread stays with a column of y, so that it looks once for the input that this is and for what
// the column is multiplied by, and copies rows of it at a constant stride.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/device/half_math.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/int8_math.cuh"
#include "layers/cuda/movement/concat_rows.h"

namespace pipit::internal::cuda::concat {

inline constexpr unsigned kThreads = 256;  // of a block
inline constexpr int kAtOnce = 4;          // rows whose reads are in flight together

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

// The values of N neighbouring channels; constants, which may be read before the previous kernel has finished.
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> of_channels(const T* values, int channel) {
  Pack<T, N> result;
  constexpr int kWide = N < 4 ? N : 4;
#pragma unroll
  for (int i = 0; i < N; i += kWide)
    *reinterpret_cast<Pack<T, kWide>*>(result.v + i) =
        *reinterpret_cast<const Pack<T, kWide>*>(values + channel + i);
  return result;
}

// What a thread does with the unit that it copies, of a column that begins with byte `at` of y's row.
template <typename T>
struct Unchanged {
  using Unit = T;
  __device__ Unchanged(const ConcatRowsArgs&, int) {}
  __device__ T operator()(T unit) const { return unit; }
};

__device__ __forceinline__ float as_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float as_float(float x) {
  return x;
}
__device__ __forceinline__ void put(__half& to, float x) {
  to = __float2half_rn(x);
}
__device__ __forceinline__ void put(float& to, float x) {
  to = x;
}

template <typename T, int N>
struct Scaled {
  using Unit = Pack<T, N>;
  Pack<float, N> factor, shift;
  float low, high;
  __device__ Scaled(const ConcatRowsArgs& a, int at)
      : factor(of_channels<N>(a.factors, at / static_cast<int>(sizeof(T)))),
        shift(of_channels<N>(a.shifts, at / static_cast<int>(sizeof(T)))),
        low(a.low),
        high(a.high) {}
  __device__ Unit operator()(Unit unit) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      put(unit.v[i], clamp_value(fmaf(as_float(unit.v[i]), factor.v[i], shift.v[i]), low, high));
    return unit;
  }
};

template <int N>
struct Requantized {
  using Unit = Pack<std::int8_t, N>;
  Pack<std::int32_t, N> weight, bias;
  Pack<float, N> multiplier;
  float low, high;
  __device__ Requantized(const ConcatRowsArgs& a, int at)
      : weight(of_channels<N>(a.weights, at)),
        bias(of_channels<N>(a.biases, at)),
        multiplier(of_channels<N>(a.multipliers, at)),
        low(a.low),
        high(a.high) {}
  __device__ Unit operator()(Unit unit) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float v = __fmul_rn(__int2float_rn(unit.v[i] * weight.v[i] + bias.v[i]), multiplier.v[i]);
      unit.v[i] = static_cast<std::int8_t>(requantize_bits(v, low, high));
    }
    return unit;
  }
};

// In the order of threads: all columns, in units, of a row that each thread begins with.
template <typename Then>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const __grid_constant__ ConcatRowsArgs a, int units, int row_step) {
  using Unit = typename Then::Unit;
  constexpr int kBytes = static_cast<int>(sizeof(Unit));
  const int thread = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int first_row = thread / units;
  const int column = (thread - first_row * units) * kBytes;
  int low = 0, high = a.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (column < a.part[middle].end) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const Then then(a, column);
  const std::int64_t width = a.part[low].end - a.part[low].first;
  const auto* x =
      static_cast<const std::byte*>(a.part[low].x) + first_row * width + column - a.part[low].first;
  auto* y = static_cast<std::byte*>(a.y) + first_row * a.pitch + column;
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  if (first_row >= row_step) return;
  for (int row = first_row; row < a.rows; row += kAtOnce * row_step) {
    Unit values[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (row + r * row_step < a.rows) values[r] = *reinterpret_cast<const Unit*>(x + r * row_step * width);
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      if (row + r * row_step < a.rows) *reinterpret_cast<Unit*>(y + r * row_step * a.pitch) = then(values[r]);
    }
    x += kAtOnce * row_step * width, y += kAtOnce * row_step * a.pitch;
  }
}

}  // namespace pipit::internal::cuda::concat
