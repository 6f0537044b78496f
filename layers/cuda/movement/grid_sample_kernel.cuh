// GridSample: a thread computes one position for up to eight channels, and finds the elements to mix only once.
#pragma once

#include "layers/cuda/device/operands.cuh"
#include "layers/ops/grid_sample.h"

namespace pipit::internal::cuda {

inline constexpr int kGridChannels = 8;  ///< of a thread
inline constexpr int kGridDims = kMaxRank - 2;

/// Row-major operands; dimensions in the order of the grid's numbers, the innermost of x first.
struct GridSampling {
  unsigned size = 0;  ///< positions of all images
  Divisor positions;  ///< of an image
  int channels = 0, x_image = 0, x_channel = 0;
  int extent[kGridDims] = {}, stride[kGridDims] = {};
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;
};

// As in layers/ops/grid_sample.cpp, operation by operation: a position at a tie is the same element on every device. So
// nothing is contracted to a multiply-add.

__device__ inline float grid_reflected(float x, float low, float high) {
  const float range = high - low;
  if (!(range > 0)) return low;
  const float beyond = x < low ? low - x : x - high;
  if (beyond <= 0) return x;
  const float turns = floorf(beyond / range);
  const float rest = __fadd_rn(beyond, -__fmul_rn(turns, range));
  const bool from_low = (x < low) == (fmodf(turns, 2.0F) == 0);
  const float inside = from_low ? low + rest : high - rest;
  return fminf(fmaxf(inside, low), high);
}

/// The element for a whole position, -1 for none.
__device__ inline int grid_element(const GridSampling& g, float x, int extent) {
  const auto last = static_cast<float>(extent - 1);
  if (g.padding == GridPadding::zeros && !(x >= 0 && x <= last)) return -1;
  if (g.padding == GridPadding::reflection) {
    const float edge = g.align_corners ? 0 : 0.5F;
    x = truncf(grid_reflected(x, -edge, last + edge));
  }
  return static_cast<int>(fminf(fmaxf(x, 0.0F), last));
}

/// The elements of x that position `n` reads along one dimension, and their weights; 0 outside.
template <int Taps>
__device__ inline void grid_taps(const GridSampling& g, float n, int extent, int stride, int (&at)[Taps],
                                 float (&weight)[Taps]) {
  constexpr float kFarAway = 1e9F;
#pragma unroll
  for (int i = 0; i < Taps; ++i) at[i] = 0, weight[i] = 0;
  const auto size = static_cast<float>(extent);
  const float moved = __fadd_rn(n, 1.0F);
  float x = g.align_corners ? __fmul_rn(moved / 2, size - 1) : __fadd_rn(__fmul_rn(moved, size), -1.0F) / 2;
  if (x != x) {
    weight[0] = g.padding == GridPadding::zeros ? 0 : 1;
    return;
  }
  x = fminf(fmaxf(x, -kFarAway), kFarAway);
  if (Taps == 1) x = rintf(x);
  const float edge = g.align_corners ? 0 : 0.5F;
  if (x < -edge || x > size - 1 + edge) {
    if (g.padding == GridPadding::border && Taps != 4) x = fminf(fmaxf(x, 0.0F), size - 1);
    if (g.padding == GridPadding::reflection) x = grid_reflected(x, -edge, size - 1 + edge);
  }
  const float first = Taps == 1 ? truncf(x) : floorf(x);
  const float t = x - first;
  float weights[Taps];
  if constexpr (Taps == 1) {
    weights[0] = 1;
  } else if constexpr (Taps == 2) {
    weights[0] = 1 - t, weights[1] = t;
  } else {
    constexpr float kA = -0.75F;
    const auto far_weight = [](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
    const auto near_weight = [](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
    weights[0] = far_weight(t + 1), weights[1] = near_weight(t);
    weights[2] = near_weight(1 - t), weights[3] = far_weight(2 - t);
  }
#pragma unroll
  for (int i = 0; i < Taps; ++i) {
    const int element = grid_element(g, first + static_cast<float>(Taps == 4 ? i - 1 : i), extent);
    if (element < 0) continue;
    at[i] = element * stride;
    weight[i] = weights[i];
  }
}

/// Taps: 1 nearest, 2 linear, 4 cubic, along each of Dims dimensions.
template <int Taps, int Dims>
__global__ void grid_sample(GridSampling g, Out y, In x, In grid) {
  const unsigned place = thread_index();
  if (place >= g.size) return;
  int at[Dims][Taps];
  float weight[Dims][Taps];
#pragma unroll
  for (int d = 0; d < Dims; ++d) {
    const auto n = load<float>(grid, static_cast<std::int64_t>(place) * Dims + d);
    grid_taps<Taps>(g, n, g.extent[d], g.stride[d], at[d], weight[d]);
  }
  const unsigned image = g.positions.divide(place);
  const int first = static_cast<int>(blockIdx.y) * kGridChannels;
  const int channels = g.channels - first;
  const std::int64_t from = static_cast<std::int64_t>(image) * static_cast<unsigned>(g.x_image) +
                            static_cast<std::int64_t>(first) * g.x_channel;
  float sum[kGridChannels] = {};
  constexpr int kMixed = Taps * (Dims > 1 ? Taps : 1) * (Dims > 2 ? Taps : 1) * (Dims > 3 ? Taps : 1);
  constexpr int kUnrolled = kMixed <= 16 ? kMixed : 1;
#pragma unroll kUnrolled
  for (int mixed = 0; mixed < kMixed; ++mixed) {
    float w = 1;
    std::int64_t element = from;
    int rest = mixed;
#pragma unroll
    for (int d = 0; d < Dims; ++d) {
      w *= weight[d][rest % Taps];
      element += at[d][rest % Taps];
      rest /= Taps;
    }
    if (w == 0) continue;  // what is there may be NaN
#pragma unroll
    for (int c = 0; c < kGridChannels; ++c) {
      if (c < channels) sum[c] += w * load<float>(x, element + static_cast<std::int64_t>(c) * g.x_channel);
    }
  }
  const unsigned positions = g.positions.value;
  const std::int64_t to =
      (static_cast<std::int64_t>(image) * g.channels + first) * positions + (place - image * positions);
#pragma unroll
  for (int c = 0; c < kGridChannels; ++c) {
    if (c < channels) store<float>(y, to + static_cast<std::int64_t>(c) * positions, sum[c]);
  }
}

}  // namespace pipit::internal::cuda
