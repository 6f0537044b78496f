// The kernel of depthwise convolutions of halves. A thread computes a few neighbouring channels of some neighbouring
// columns and slides down the rows: every row of x that it reads is added to all rows of y that it belongs to, whose
// sums are in registers, so that x is read and converted once.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "layers/cuda/conv/conv_depthwise_launch.h"
#include "layers/cuda/conv/depthwise_threads.cuh"
#include "layers/cuda/conv/half_function.cuh"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/half_math.h"

namespace pipit::cuda::depthwise {

/// Halves of neighbouring channels, two in a word.
template <int Channels>
struct alignas(Channels * 2) Pixel {
  __half2 pair[Channels / 2];
};

// Blocks: what registers must allow a multiprocessor. Function: a.function is computed.
template <int Window, int Stride, int Columns, int Channels, int Blocks, bool Function>
__global__ void __launch_bounds__(kThreads, Blocks)
    depthwise_halves(const __grid_constant__ ConvDepthwiseArgs a) {
  constexpr int kIn = (Columns - 1) * Stride + Window;    // columns of x
  constexpr int kAlive = (Window + Stride - 1) / Stride;  // rows of y that a row of x may belong to
  using P = Pixel<Channels>;
  ptx::release_next_kernel();
  const Place place(a, Channels, Columns);
  if (place.image >= a.batch) return;

  float weights[Window * Window][Channels], bias[Channels];
#pragma unroll
  for (int c = 0; c < Channels; ++c) bias[c] = a.bias[place.channel + c];
#pragma unroll
  for (int t = 0; t < Window * Window; ++t) {
#pragma unroll
    for (int c = 0; c < Channels; ++c) weights[t][c] = a.weights[t * a.channels + place.channel + c];
  }
  ptx::wait_for_previous_kernel();

  const int left = place.column * Stride - a.pad_w;
  unsigned inside = 0;  // a bit for every column of x
#pragma unroll
  for (int j = 0; j < kIn; ++j)
    inside |= static_cast<unsigned>(left + j) < static_cast<unsigned>(a.in_w) ? 1U << j : 0U;
  const std::int64_t pitch = static_cast<std::int64_t>(a.in_w) * a.channels;
  const __half* x = static_cast<const __half*>(a.x) + place.image * a.in_h * pitch +
                    left * static_cast<std::int64_t>(a.channels) + place.channel;
  const auto load_row = [&](P(&to)[kIn], int h) {
    const unsigned valid = static_cast<unsigned>(h) < static_cast<unsigned>(a.in_h) ? inside : 0U;
    const __half* row = x + h * pitch;
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
#pragma unroll
      for (__half2& pair : to[j].pair) pair = __half2{};
      if (valid >> j & 1U) to[j] = *reinterpret_cast<const P*>(row + j * a.channels);
    }
  };

  float sums[kAlive][Columns][Channels];
  const auto start = [&](float(&row)[Columns][Channels]) {
#pragma unroll
    for (int t = 0; t < Columns; ++t) {
#pragma unroll
      for (int c = 0; c < Channels; ++c) row[t][c] = bias[c];
    }
  };
  // Row `i` of the window of the row of y whose sums are sums[oldest]; the rows of y below have the next ones.
  const auto add_row = [&](const P(&pixels)[kIn], int i, int oldest) {
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
      float v[Channels];
#pragma unroll
      for (int c = 0; c < Channels; c += 2) {
        const float2 two = __half22float2(pixels[j].pair[c / 2]);
        v[c] = two.x, v[c + 1] = two.y;
      }
#pragma unroll
      for (int d = 0; d < kAlive; ++d) {
        const int tap_row = i - d * Stride;
        if (tap_row < 0 || tap_row >= Window) continue;
#pragma unroll
        for (int t = 0; t < Columns; ++t) {
          const int tap_column = j - t * Stride;
          if (tap_column < 0 || tap_column >= Window) continue;
#pragma unroll
          for (int c = 0; c < Channels; ++c) {
            float& sum = sums[(oldest + d) % kAlive][t][c];
            sum = fmaf(v[c], weights[tap_row * Window + tap_column][c], sum);
          }
        }
      }
    }
  };
#pragma unroll
  for (int d = 0; d < kAlive; ++d) start(sums[d]);

  int h = place.row * Stride - a.pad_h;
  P pixels[Stride][kIn];
  {
    P above[Window - Stride][kIn];
#pragma unroll
    for (int r = 0; r < Window - Stride; ++r) load_row(above[r], h + r);
#pragma unroll
    for (int s = 0; s < Stride; ++s) load_row(pixels[s], h + Window - Stride + s);
#pragma unroll
    for (int r = 0; r < Window - Stride; ++r) add_row(above[r], r, 0);
  }
  h += Window;

  const int end = min(place.row + a.rows, a.out_h);
  auto* y =
      static_cast<__half*>(a.y) +
      ((static_cast<std::int64_t>(place.image) * a.out_h + place.row) * a.out_w + place.column) * a.channels +
      place.channel;
  for (int row = place.row; row < end;) {
#pragma unroll
    for (int oldest = 0; oldest < kAlive; ++oldest) {
      if (row >= end) return;
      // The next rows of x are under way while these are multiplied.
      P next[Stride][kIn];
#pragma unroll
      for (int s = 0; s < Stride; ++s) load_row(next[s], row + 1 < end ? h + s : -1);
      h += Stride;
#pragma unroll
      for (int s = 0; s < Stride; ++s) add_row(pixels[s], Window - Stride + s, oldest);
#pragma unroll
      for (int t = 0; t < Columns; ++t) {
        if constexpr (Function) apply_clamped(a.function, a.low, a.high, sums[oldest][t]);
        P result;
#pragma unroll
        for (int c = 0; c < Channels; c += 2) {
          if constexpr (Function) {
            result.pair[c / 2] = __floats2half2_rn(sums[oldest][t][c], sums[oldest][t][c + 1]);
            continue;
          }
          result.pair[c / 2] = __floats2half2_rn(clamp_value(sums[oldest][t][c], a.low, a.high),
                                                 clamp_value(sums[oldest][t][c + 1], a.low, a.high));
        }
        if (place.column + t < a.out_w) *reinterpret_cast<P*>(y + t * a.channels) = result;
      }
      start(sums[oldest]);
      y += static_cast<std::int64_t>(a.out_w) * a.channels;
      ++row;
#pragma unroll
      for (int s = 0; s < Stride; ++s) {
#pragma unroll
        for (int j = 0; j < kIn; ++j) pixels[s][j] = next[s][j];
      }
    }
  }
}

}  // namespace pipit::cuda::depthwise
