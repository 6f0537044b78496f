// Pools over the small windows that networks use, NHWC: two by two neighbouring outputs and a few bytes of channels a
// thread, so that every pixel is read about once. What is computed of a window is a policy's.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/fast_division.h"

namespace pipit::cuda {

inline constexpr unsigned kPoolThreads = 256;
inline constexpr int kPoolOutputs = 2;  ///< of a thread, along each axis

struct SmallWindows {
  const void* x = nullptr;
  void* y = nullptr;
  unsigned size = 0;                // threads with work
  Divisor channels, columns, rows;  // units of channels, pairs of output columns and rows
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1, pad_h = 0, pad_w = 0;
};

/// In one access, which the compiler otherwise takes apart where words of a unit go different ways.
template <typename Unit>
__device__ __forceinline__ Unit read_unit(const Unit* from) {
  static_assert(sizeof(Unit) == 8 || sizeof(Unit) == 16);
  using Whole = std::conditional_t<sizeof(Unit) == 16, uint4, uint2>;
  const Whole whole = *reinterpret_cast<const Whole*>(from);
  Unit unit;
  memcpy(&unit, &whole, sizeof unit);
  return unit;
}

/// Policy has Unit, neighbouring channels as they are read and written; Value, what is known of some of a window's
/// pixels; value(unit); outside(), that of padding; join(value, value); result(value, h, w, Kernel), the unit of y
/// whose window of Kernel x Kernel begins at position (h, w) of x.
template <typename Policy, int Kernel, int Stride>
__global__ void __launch_bounds__(kPoolThreads)
    pool_small_windows(const __grid_constant__ SmallWindows g, const __grid_constant__ Policy policy) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= g.size) return;
  const auto take = [&](const Divisor& extent) {
    const unsigned rest = extent.divide(i);
    const int index = static_cast<int>(i - rest * extent.value);
    i = rest;
    return index;
  };
  using Unit = typename Policy::Unit;
  using Value = typename Policy::Value;
  const int channel = take(g.channels);
  const int ow = take(g.columns) * kPoolOutputs;
  const int oh = take(g.rows) * kPoolOutputs;
  const int pixel = static_cast<int>(g.channels.value);
  const Unit* image =
      static_cast<const Unit*>(g.x) + static_cast<std::int64_t>(i) * g.in_h * g.in_w * pixel + channel;
  const int first_h = oh * Stride - g.pad_h, first_w = ow * Stride - g.pad_w;
  constexpr int kRead = (kPoolOutputs - 1) * Stride + Kernel;
  Value of[kPoolOutputs][kPoolOutputs];
#pragma unroll
  for (int r = 0; r < kRead; ++r) {
    const int h = first_h + r;
    Value value[kRead];
#pragma unroll
    for (int c = 0; c < kRead; ++c) {
      const int w = first_w + c;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(g.in_w);
      value[c] = inside ? policy.value(read_unit(image + (h * g.in_w + w) * pixel)) : policy.outside();
    }
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      Value across = value[o * Stride];
#pragma unroll
      for (int k = 1; k < Kernel; ++k) across = policy.join(across, value[o * Stride + k]);
#pragma unroll
      for (int p = 0; p < kPoolOutputs; ++p) {
        if (r == p * Stride) of[p][o] = across;
        if (r > p * Stride && r < p * Stride + Kernel) of[p][o] = policy.join(of[p][o], across);
      }
    }
  }
  Unit* to = static_cast<Unit*>(g.y) + static_cast<std::int64_t>(i) * g.out_h * g.out_w * pixel + channel;
#pragma unroll
  for (int p = 0; p < kPoolOutputs; ++p) {
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      if (oh + p < g.out_h && ow + o < g.out_w)
        to[((oh + p) * g.out_w + ow + o) * pixel] =
            policy.result(of[p][o], first_h + p * Stride, first_w + o * Stride, Kernel);
    }
  }
}

/// How many positions of windows are averaged.
struct AveragedPositions {
  bool include_pad = false;
  int extent[2] = {}, pad_begin[2] = {}, pad_end[2] = {};

  /// Of a window from (h, w) on: those inside of x.
  __device__ int inside(int h, int w, int kernel) const {
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent[d]) - max(first, 0), 0);
    };
    return along(0, h) * along(1, w);
  }
  /// What the sum is divided by (average_divisor()).
  __device__ int divisor(int h, int w, int kernel) const {
    if (!include_pad) return inside(h, w, kernel);
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent[d] + pad_end[d]) - max(first, -pad_begin[d]), 0);
    };
    return along(0, h) * along(1, w);
  }
};

}  // namespace pipit::cuda
