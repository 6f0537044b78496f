// Which results a thread of a depthwise convolution computes, and how many suit a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/base/ceil_div.h"
#include "layers/cuda/conv/depthwise/plan.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda::depthwise {

inline constexpr int kThreads = 128;  // of a block

// Where a thread's results begin. Channels run fastest through the threads.
struct Place {
  int channel, column, row, image;
  __device__ __forceinline__ Place(const DepthwiseGeometry& g, int channels, int columns) {
    unsigned rest = blockIdx.x * kThreads + threadIdx.x;
    const auto take = [&](int extent) {
      const unsigned above = rest / static_cast<unsigned>(extent);
      const auto position = static_cast<int>(rest - above * static_cast<unsigned>(extent));
      rest = above;
      return position;
    };
    channel = take(g.channels / channels) * channels;
    column = take((g.out_w + columns - 1) / columns) * columns;
    row = take((g.out_h + g.rows - 1) / g.rows) * g.rows;
    image = static_cast<int>(rest);
  }
};

inline std::int64_t blocks_for(const DepthwiseGeometry& g, int channels, int columns, int rows) {
  const std::int64_t threads =
      g.batch * ceil_div(g.out_h, rows) * ceil_div(g.out_w, columns) * (g.channels / channels);
  return ceil_div(threads, kThreads);
}

// Long threads read fewer rows twice, short ones are enough to occupy the GPU; rounds of blocks that are not full are
// a half lost. The cost of a thread is counted in rows: those it reads, those it writes, and its start. Within 5 % of
// the best on average in INT8 (docs/benchmarks/gpu.md).
inline int rows_for(const DepthwiseGeometry& g, int channels, int columns, int resident_blocks) {
  constexpr int kMaxRows = 28;
  constexpr int kStart = 2;
  constexpr double kLost = 0.5;
  int rows = 1;
  double best = 0;
  for (int most = std::min(kMaxRows, g.out_h); most > 0; --most) {
    const auto each = static_cast<int>(ceil_div(g.out_h, ceil_div(g.out_h, most)));
    double rounds = static_cast<double>(blocks_for(g, channels, columns, each)) / resident_blocks;
    rounds = rounds <= 1 ? 1 : rounds + kLost * (std::ceil(rounds) - rounds);
    const double cost = rounds * (kStart + each * (g.stride + 1) + g.window - g.stride);
    if (best == 0 || cost < best) best = cost, rows = each;
  }
  return rows;
}

inline cudaError_t resident_blocks_of(const void* kernel, int& blocks) {
  int gpu = 0;
  int processors = 0;
  cudaError_t status = cudaGetDevice(&gpu);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0);
  blocks = std::max(blocks, 1) * processors;
  return status;
}

// Sets the columns and rows of a thread. `instances`: by window and stride, those of few columns first; `kernel_of`
// names an instance's.
template <typename Instances, typename KernelOf>
cudaError_t choose(DepthwiseGeometry& g, const Instances& instances, const KernelOf& kernel_of,
                   const void*& kernel) {
  int resident = 1, channels = 1;
  kernel = nullptr;
  for (const auto& i : instances) {
    if (i.window != g.window || i.stride != g.stride || g.channels % i.channels != 0) continue;
    // Wider threads may occupy less of the GPU, or compute much that lies outside.
    const bool much_outside = ceil_div(g.out_w, i.columns) * i.columns * 4 > g.out_w * std::int64_t{5};
    if (kernel != nullptr && (much_outside || blocks_for(g, channels, g.columns, 1) <= resident)) break;
    g.columns = i.columns, channels = i.channels;
    kernel = kernel_of(i);
    if (const cudaError_t status = resident_blocks_of(kernel, resident); status != cudaSuccess) return status;
  }
  if (kernel == nullptr) return cudaErrorInvalidValue;
  g.rows = rows_for(g, channels, g.columns, resident);
  return cudaSuccess;
}

}  // namespace pipit::internal::cuda::depthwise

namespace pipit::internal::cuda::depthwise {

// The kernel of depthwise convolutions of halves and of bfloat16. A thread computes a few neighbouring channels of some
// neighbouring columns and slides down the rows: every row of x that it reads is added to all rows of y that it belongs
// to, whose sums are in registers, so that x is read and converted once.

/// Elements of neighbouring channels, two in a word.
template <typename Element, int Channels>
struct alignas(Channels * 2) Pixel {
  TwoOf<Element> pair[Channels / 2];
};

// Blocks: what registers must allow a multiprocessor. Function: a.function is computed.
template <typename Element, int Window, int Stride, int Columns, int Channels, int Blocks, bool Function>
__global__ void __launch_bounds__(kThreads, Blocks)
    depthwise_halves(const __grid_constant__ ConvDepthwiseArgs a) {
  constexpr int kIn = (Columns - 1) * Stride + Window;    // columns of x
  constexpr int kAlive = (Window + Stride - 1) / Stride;  // rows of y that a row of x may belong to
  using P = Pixel<Element, Channels>;
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
  const Element* x = static_cast<const Element*>(a.x) + place.image * a.in_h * pitch +
                     left * static_cast<std::int64_t>(a.channels) + place.channel;
  const auto load_row = [&](P(&to)[kIn], int h) {
    const unsigned valid = static_cast<unsigned>(h) < static_cast<unsigned>(a.in_h) ? inside : 0U;
    const Element* row = x + h * pitch;
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
#pragma unroll
      for (auto& pair : to[j].pair) pair = std::decay_t<decltype(pair)>{};
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
        const float2 two = to_floats(pixels[j].pair[c / 2]);
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
      static_cast<Element*>(a.y) +
      ((static_cast<std::int64_t>(place.image) * a.out_h + place.row) * a.out_w + place.column) * a.channels +
      place.channel;
  for (int row = place.row; row < end;) {
#pragma unroll
    for (int oldest = 0; oldest < kAlive; ++oldest) {
      if (row >= end) return;
      // The next rows of x are in flight while these are multiplied.
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
            result.pair[c / 2] = to_two<Element>(sums[oldest][t][c], sums[oldest][t][c + 1]);
            continue;
          }
          result.pair[c / 2] = to_two<Element>(clamp_value(sums[oldest][t][c], a.low, a.high),
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

}  // namespace pipit::internal::cuda::depthwise

namespace pipit::internal::cuda::depthwise {

// The kernel of INT8 depthwise convolutions. A thread computes four neighbouring channels of some neighbouring columns
// and slides down the rows: of every column and channel it keeps the last four rows as the bytes of one register, so
// that one product of four bytes meets four rows of taps, and every byte of x is moved into place once. A window of
// seven rows has a second register for the four rows before.

inline constexpr int kQuad = 4;  // channels of a thread

// The column's last three rows and, as the newest, byte c of a pixel's word.
__device__ __forceinline__ unsigned pushed(unsigned column, unsigned pixel, int c) {
  return __byte_perm(column, pixel, 0x4321U + (static_cast<unsigned>(c) << 12));
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

// Results of four neighbouring channels, as layers/ops/quantization.h specifies them: bytes, bytes that went through a
// table, f16, bf16 or f32.
enum class Result : std::uint8_t { bytes, looked_up, real };

// Blocks: what registers must allow a multiprocessor.
template <int Window, int Stride, int Columns, int Blocks, Result R>
__global__ void __launch_bounds__(kThreads, Blocks)
    depthwise_quads(const __grid_constant__ QDepthwiseArgs a) {
  constexpr int kIn = (Columns - 1) * Stride + Window;  // columns of x
  constexpr bool kFifth = Window == 5;                  // a row of taps that the registers have no room for
  constexpr bool kOlder = Window > 5;                   // rows of taps before the last four
  __shared__ alignas(4) std::uint8_t table[R == Result::looked_up ? 256 : 4];
  if constexpr (R == Result::looked_up) {
    copy_table(table, a.table);
    __syncthreads();
  }
  ptx::release_next_kernel();
  const Place place(a, kQuad, Columns);
  if (place.image >= a.batch) return;

  const int channel = place.channel;
  Four<int> first = *reinterpret_cast<const Four<int>*>(a.bias + channel);
  // The bits of a small sum are then a float.
#pragma unroll
  for (int c = 0; c < kQuad; ++c) first.v[c] += a.small ? kMagicBits : 0;
  const auto multipliers = *reinterpret_cast<const Four<float>*>(a.multipliers + channel);
  Four<int> weights[Window],
      others[kFifth || kOlder ? Window : 1];  // others: of the fifth row, or of older ones
#pragma unroll
  for (int j = 0; j < Window; ++j) {
    weights[j] = *reinterpret_cast<const Four<int>*>(a.weights + j * a.channels + channel);
    if constexpr (kFifth || kOlder)
      others[j] = *reinterpret_cast<const Four<int>*>(a.weights + (Window + j) * a.channels + channel);
  }
  ptx::wait_for_previous_kernel();

  const int left = place.column * Stride - a.pad_w;
  unsigned inside = 0;  // a bit for every column of x
#pragma unroll
  for (int j = 0; j < kIn; ++j)
    inside |= static_cast<unsigned>(left + j) < static_cast<unsigned>(a.in_w) ? 1U << j : 0U;
  const int pitch = a.in_w * a.channels;
  const std::uint8_t* x = static_cast<const std::uint8_t*>(a.x) +
                          place.image * (static_cast<std::int64_t>(a.in_h) * pitch) +
                          left * static_cast<std::int64_t>(a.channels) + channel;
  const auto load_row = [&](unsigned(&to)[kIn], int h) {
    const unsigned valid = static_cast<unsigned>(h) < static_cast<unsigned>(a.in_h) ? inside : 0U;
    const std::uint8_t* row = x + h * static_cast<std::int64_t>(pitch);
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
      to[j] = a.padding;
      if (valid >> j & 1U) to[j] = *reinterpret_cast<const unsigned*>(row + j * a.channels);
      to[j] ^= a.flip;
    }
  };
  unsigned columns[kIn][kQuad] = {}, older[kOlder ? kIn : 1][kQuad] = {};
  const auto push = [&](const unsigned(&pixels)[kIn]) {
#pragma unroll
    for (int j = 0; j < kIn; ++j) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        if constexpr (kOlder) older[j][c] = pushed(older[j][c], columns[j][c], 0);
        columns[j][c] = pushed(columns[j][c], pixels[j], c);
      }
    }
  };

  int h = place.row * Stride - a.pad_h;
  unsigned pixels[Stride][kIn];
  unsigned above[Window - Stride][kIn];
#pragma unroll
  for (int r = 0; r < Window - Stride; ++r) load_row(above[r], h + r);
#pragma unroll
  for (int s = 0; s < Stride; ++s) load_row(pixels[s], h + Window - Stride + s);
#pragma unroll
  for (int r = 0; r < Window - Stride; ++r) push(above[r]);
  h += Window;

  const int end = min(place.row + a.rows, a.out_h);
  std::int64_t at =
      ((static_cast<std::int64_t>(place.image) * a.out_h + place.row) * a.out_w + place.column) * a.channels +
      channel;
  for (int row = place.row; row < end; ++row) {
    // The next rows of x are in flight while these are multiplied.
    unsigned next[Stride][kIn];
#pragma unroll
    for (int s = 0; s < Stride; ++s) load_row(next[s], row + 1 < end ? h + s : -1);
    h += Stride;
#pragma unroll
    for (int s = 0; s < Stride - (kFifth ? 1 : 0); ++s) push(pixels[s]);
    int sums[Columns][kQuad];
#pragma unroll
    for (int t = 0; t < Columns; ++t) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) {
        sums[t][c] = first.v[c];
#pragma unroll
        for (int j = 0; j < Window; ++j) {
          sums[t][c] = __dp4a(static_cast<int>(columns[t * Stride + j][c]), weights[j].v[c], sums[t][c]);
          if constexpr (kFifth)
            sums[t][c] =
                __dp4a(static_cast<int>(pixels[Stride - 1][t * Stride + j]), others[j].v[c], sums[t][c]);
          if constexpr (kOlder)
            sums[t][c] = __dp4a(static_cast<int>(older[t * Stride + j][c]), others[j].v[c], sums[t][c]);
        }
      }
    }
    if constexpr (kFifth) push(pixels[Stride - 1]);
    const auto write = [&]<bool Small>() {
      float v[Columns][kQuad];
#pragma unroll
      for (int t = 0; t < Columns; ++t) {
#pragma unroll
        for (int c = 0; c < kQuad; ++c) v[t][c] = scaled(sums[t][c], multipliers.v[c], Small);
      }
      if constexpr (R == Result::real) {
#pragma unroll
        for (int t = 0; t < Columns; ++t) {
          if (place.column + t < a.out_w)
            store_clamped(a.stored, a.y, at + t * static_cast<std::int64_t>(a.channels), v[t], a.low, a.high);
        }
      } else {
        std::uint32_t words[Columns];
#pragma unroll
        for (int t = 0; t < Columns; ++t)
          words[t] = R == Result::bytes && Small
                         ? requantize_four<false>(v[t], a.whole_bounds)
                         : four_bytes<R == Result::looked_up>(v[t], a.low, a.high, table);
        auto* y = static_cast<std::uint8_t*>(a.y) + at;
#pragma unroll
        for (int t = 0; t < Columns; ++t) {
          if (place.column + t < a.out_w) *reinterpret_cast<std::uint32_t*>(y + t * a.channels) = words[t];
        }
      }
    };
    if (a.small) {
      write.template operator()<true>();
    } else {
      write.template operator()<false>();
    }
    at += static_cast<std::int64_t>(a.out_w) * a.channels;
#pragma unroll
    for (int s = 0; s < Stride; ++s) {
#pragma unroll
      for (int j = 0; j < kIn; ++j) pixels[s][j] = next[s][j];
    }
  }
}

}  // namespace pipit::internal::cuda::depthwise
