// Rows side by side. A thread stays with a column of y, so that it looks once for the input that this is and for what
// the column is multiplied by, and copies rows of it at a constant stride.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"
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
__device__ __forceinline__ float as_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ void put(__half& to, float x) {
  to = __float2half_rn(x);
}
__device__ __forceinline__ void put(__nv_bfloat16& to, float x) {
  to = __float2bfloat16_rn(x);
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
      const float v = scaled(unit.v[i] * weight.v[i] + bias.v[i], multiplier.v[i]);
      unit.v[i] = static_cast<std::int8_t>(byte_of(v, low, high));
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

// Rows of channels in another order. A thread stays with some neighbouring channels of an output, so that it looks once
// for the inputs that they come from, and moves them for rows at a constant stride.

namespace pipit::internal::cuda {

inline constexpr int kShuffleMax = 16;  ///< inputs, and outputs
inline constexpr unsigned kShuffleThreads = 256;
inline constexpr int kShuffleAtOnce = 4;  ///< rows whose reads are in flight together

/// Rows of an input or output: of all channels those from the end of the previous one up to `end`, and up to its width
/// others, which are not read, or written as the last element is. None is empty.
template <typename Pointer>
struct ShuffledRows {
  Pointer data = nullptr;
  int end = 0, width = 0;
};

struct ShuffleArgs {
  unsigned groups = 1, of_group = 0;  ///< channels of a group
  int rows = 0, row_step = 0;         ///< from one row of a thread to the next
  int units = 0;                      ///< of a thread, in a row of all outputs
  ShuffledRows<const void*> x[kShuffleMax];
  ShuffledRows<void*> y[kShuffleMax];
};

/// y[c] = x[c % groups * of_group + c / groups] in every row. N channels of an output's width, which begin with a
/// multiple of N, are a thread's. units * row_step threads and more; args.rows > 0.
template <typename T, int N>
__global__ void __launch_bounds__(kShuffleThreads) shuffle_rows(const __grid_constant__ ShuffleArgs a) {
  struct alignas(sizeof(T) * N) Unit {
    T v[N];
  };
  const int thread = static_cast<int>(blockIdx.x * kShuffleThreads + threadIdx.x);
  const int first_row = thread / a.units;
  int column = (thread - first_row * a.units) * N;
  int at = 0, y_first = 0;
  while (column >= a.y[at].width) {
    column -= a.y[at].width;
    y_first = a.y[at++].end;
  }
  const std::int64_t y_width = a.y[at].width;
  T* y = static_cast<T*>(a.y[at].data) + first_row * y_width + column;
  const T* x[N];
  std::int64_t width[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const auto channel = static_cast<unsigned>(min(y_first + column + i, a.y[at].end - 1));
    const unsigned of_group = channel / a.groups;
    const unsigned group = channel - of_group * a.groups;
    const int source = static_cast<int>(group * a.of_group + of_group);
    int part = 0, x_first = 0;
    while (source >= a.x[part].end) x_first = a.x[part++].end;
    width[i] = a.x[part].width;
    x[i] = static_cast<const T*>(a.x[part].data) + first_row * width[i] + source - x_first;
  }
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  if (first_row >= a.row_step) return;
  for (int row = first_row; row < a.rows; row += kShuffleAtOnce * a.row_step) {
    Unit units[kShuffleAtOnce];
#pragma unroll
    for (int r = 0; r < kShuffleAtOnce; ++r) {
      if (row + r * a.row_step >= a.rows) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) units[r].v[i] = x[i][r * a.row_step * width[i]];
    }
#pragma unroll
    for (int r = 0; r < kShuffleAtOnce; ++r) {
      if (row + r * a.row_step < a.rows) *reinterpret_cast<Unit*>(y + r * a.row_step * y_width) = units[r];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += kShuffleAtOnce * a.row_step * width[i];
    y += kShuffleAtOnce * a.row_step * y_width;
  }
}

}  // namespace pipit::internal::cuda
