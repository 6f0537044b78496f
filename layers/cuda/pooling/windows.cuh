// Pooling windows as GPU kernels walk them, whatever the layout and element type.
#pragma once

#include "layers/cuda/device/kernel.cuh"
#include "layers/ops/pool.h"

namespace pipit::internal::cuda {

struct PoolAxis {
  int kernel, stride, dilation, pad_begin, pad_end;
  int extent;  // of the input
  int x_step;  // of the input, in elements
  Divisor y_extent;
  int y_step;
};

struct PoolGeometry {
  bool include_pad;
  float p;
  unsigned size;                               // points: output elements / V
  Divisor channels;                            // / V
  int x_batch, x_channel, y_batch, y_channel;  // strides; the channels' are V where V > 1
  bool channels_inner;                         // order of the points: channels fastest, or spatial positions
  PoolAxis axis[3];
};

struct Taps {
  int first, begin, end;  // position of tap 0; taps [begin, end) lie inside [0, extent)
};

__device__ inline Taps taps_of(const PoolAxis& a, int start, int extent) {
  // Dilated pools are rare, and divisions take longer than the rest.
  const auto steps = [&](int room) {
    return room <= 0 ? 0 : a.dilation == 1 ? room : (room + a.dilation - 1) / a.dilation;
  };
  const int below = steps(-start);
  const int above = steps(extent - start);
  const int begin = min(below, a.kernel);
  return {start, begin, max(begin, min(above, a.kernel))};
}

/// One thread's output: its taps, what an average divides by, and offsets in elements.
struct PoolPoint {
  Taps taps[3];
  int divisor = 1;
  int plane, to;  // of x at spatial position 0; of y

  __device__ PoolPoint(const PoolGeometry& g, unsigned i) {
    const auto take = [&](const Divisor& extent) {
      const unsigned rest = extent.divide(i);
      const int index = static_cast<int>(i - rest * extent.value);
      i = rest;
      return index;
    };
    int c = 0;
    int position[3];
    if (g.channels_inner) c = take(g.channels);
    for (int d = 2; d >= 0; --d) position[d] = take(g.axis[d].y_extent);
    if (!g.channels_inner) c = take(g.channels);
    const int n = static_cast<int>(i);
    to = n * g.y_batch + c * g.y_channel;
    plane = n * g.x_batch + c * g.x_channel;
    for (int d = 0; d < 3; ++d) {
      const PoolAxis& a = g.axis[d];
      const int start = position[d] * a.stride - a.pad_begin;
      taps[d] = taps_of(a, start, a.extent);
      const Taps counted =
          g.include_pad ? taps_of(a, position[d] * a.stride, a.extent + a.pad_begin + a.pad_end) : taps[d];
      divisor *= counted.end - counted.begin;
      to += position[d] * a.y_step;
    }
  }
};

/// Spatial strides and extents as rank 3, the missing dimensions first. width: channels of a thread.
inline PoolGeometry pool_geometry(const PoolAttributes& attributes, const TensorDesc& x, const TensorDesc& y,
                                  int width) {
  const Window window = as_3d(pool_window(attributes, x.shape));
  const Strides from = x.strides();
  const Strides to = y.strides();
  PoolGeometry g{attributes.count_include_pad,
                 static_cast<float>(attributes.p),
                 static_cast<unsigned>(y.elements() / width),
                 Divisor(static_cast<unsigned>(x.shape[1] / width)),
                 static_cast<int>(from[0]),
                 static_cast<int>(from[1]) * width,
                 static_cast<int>(to[0]),
                 static_cast<int>(to[1]) * width,
                 is_channels_last(y),
                 {}};
  for (std::size_t a = 0; a < 3; ++a) {
    PoolAxis& axis = g.axis[a];
    axis.kernel = static_cast<int>(window.kernel[a]);
    axis.stride = static_cast<int>(window.stride[a]);
    axis.dilation = static_cast<int>(window.dilation[a]);
    axis.pad_begin = static_cast<int>(window.pad_begin[a]);
    axis.pad_end = static_cast<int>(window.pad_end[a]);
    axis.extent = 1;
    const int d = x.shape.rank() - 3 + static_cast<int>(a);
    if (d < 2) continue;
    axis.extent = static_cast<int>(x.shape[d]);
    axis.x_step = static_cast<int>(from[static_cast<std::size_t>(d)]);
    axis.y_extent = Divisor(static_cast<unsigned>(y.shape[d]));
    axis.y_step = static_cast<int>(to[static_cast<std::size_t>(d)]);
  }
  return g;
}

/// Refuses windows whose positions do not fit 32 bits.
inline Refusal refuse_wide_pool(const PoolAttributes& attributes, const Shape& input) {
  const Window window = as_3d(pool_window(attributes, input));
  for (std::size_t a = 0; a < 3; ++a) {
    // Positions in and beyond the padding are computed in 32 bits.
    constexpr std::int64_t kLimit = std::int64_t{1} << 30;
    const std::int64_t reach = window.pad_begin[a] + window.pad_end[a] + window.span(static_cast<int>(a));
    if (reach > kLimit / 2 || window.stride[a] > kLimit / 2) return "the window is too large";
  }
  return std::nullopt;
}

}  // namespace pipit::internal::cuda
