// Which results a thread of a depthwise convolution computes, and how many suit a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/base/ceil_div.h"
#include "layers/cuda/conv/depthwise_geometry.h"

namespace pipit::cuda::depthwise {

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
  constexpr int kMostRows = 28;
  constexpr int kStart = 2;
  constexpr double kLost = 0.5;
  int rows = 1;
  double best = 0;
  for (int most = std::min(kMostRows, g.out_h); most > 0; --most) {
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

}  // namespace pipit::cuda::depthwise
