// Rows of channels in another order. A thread stays with some neighbouring channels of an output, so that it looks once
// for the inputs that they come from, and moves them for rows at a constant stride.
#pragma once

#include <cstdint>

#include "layers/cuda/device/ptx.cuh"

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
