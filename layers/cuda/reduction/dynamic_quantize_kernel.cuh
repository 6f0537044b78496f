// DynamicQuantize: the largest magnitude of each sample, then its integers. A maximum of integers does not depend on
// the order of threads.
#pragma once

#include <cfloat>
#include <cstdint>

#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

inline constexpr int kDynamicThreads = 256;
inline constexpr int kDynamicEach = 16;        ///< elements of a thread, at least, as long as blocks are few
inline constexpr int kMaxDynamicBlocks = 256;  ///< of a sample: a thread reads what one has found

struct DynamicArgs {
  const void* x = nullptr;  ///< halves or floats
  bool halves = false;
  bool vectors = false;              ///< eight elements at once: size is a multiple of 8
  std::int64_t size = 0;             ///< elements of a sample
  int blocks = 1;                    ///< of a sample, gridDim.y; gridDim.x: samples
  std::uint32_t* largest = nullptr;  ///< [samples, blocks]: the bits of the largest magnitude
  std::int8_t* y = nullptr;
  float* scales = nullptr;  ///< [samples]
};

/// Blocks that share a sample.
inline int dynamic_blocks(std::int64_t size) {
  const std::int64_t enough = (size + kDynamicThreads * kDynamicEach - 1) / (kDynamicThreads * kDynamicEach);
  return static_cast<int>(enough < kMaxDynamicBlocks ? enough : kMaxDynamicBlocks);
}

namespace dynamic {

/// Neighbouring elements; `at` is a multiple of Count.
template <int Count>
__device__ __forceinline__ void read(const DynamicArgs& args, std::int64_t at, float (&v)[Count]) {
  const auto* halves = static_cast<const __half*>(args.x) + at;
  const auto* floats = static_cast<const float*>(args.x) + at;
  if constexpr (Count == 1) {
    v[0] = args.halves ? load(*halves) : *floats;
  } else if (args.halves) {
    const uint4 words = *reinterpret_cast<const uint4*>(halves);
    const float2 pairs[4] = {to_floats<__half>(words.x), to_floats<__half>(words.y),
                             to_floats<__half>(words.z), to_floats<__half>(words.w)};
#pragma unroll
    for (int i = 0; i < 4; ++i) v[2 * i] = pairs[i].x, v[2 * i + 1] = pairs[i].y;
  } else {
    const float4 fours[2] = {reinterpret_cast<const float4*>(floats)[0],
                             reinterpret_cast<const float4*>(floats)[1]};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      v[4 * i] = fours[i].x, v[4 * i + 1] = fours[i].y, v[4 * i + 2] = fours[i].z, v[4 * i + 3] = fours[i].w;
  }
}

/// body(where they begin in x, Count elements) of the block's part of its sample.
template <int Count, typename Body>
__device__ __forceinline__ void for_each_run(const DynamicArgs& args, const Body& body) {
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * args.size;
  const std::int64_t step = static_cast<std::int64_t>(args.blocks) * kDynamicThreads * Count;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * kDynamicThreads + threadIdx.x) * Count;
       i < args.size; i += step) {
    float v[Count];
    read(args, sample + i, v);
    body(sample + i, v);
  }
}

/// The maximum of a block's values, for all of its threads. shared: one element for each warp.
__device__ __forceinline__ std::uint32_t largest_of_block(std::uint32_t v, std::uint32_t* shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v = max(v, __shfl_xor_sync(0xFFFFFFFFU, v, mask));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
#pragma unroll
  for (int w = 1; w < kDynamicThreads / 32; ++w) v = max(v, shared[w]);
  return v;
}

}  // namespace dynamic

__global__ void __launch_bounds__(kDynamicThreads) find_largest(const __grid_constant__ DynamicArgs args) {
  __shared__ std::uint32_t of_warps[kDynamicThreads / 32];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  std::uint32_t largest = 0;
  const auto look = [&](std::int64_t, const auto& run) {
#pragma unroll
    for (const float v : run) largest = max(largest, __float_as_uint(v) & 0x7FFFFFFFU);
  };
  args.vectors ? dynamic::for_each_run<8>(args, look) : dynamic::for_each_run<1>(args, look);
  largest = dynamic::largest_of_block(largest, of_warps);
  if (threadIdx.x == 0)
    args.largest[static_cast<std::size_t>(blockIdx.x) * args.blocks + blockIdx.y] = largest;
}

/// As dynamic_scale() and requantize() of layers/ops/quantization.h say.
__global__ void __launch_bounds__(kDynamicThreads)
    quantize_samples(const __grid_constant__ DynamicArgs args) {
  __shared__ std::uint32_t of_warps[kDynamicThreads / 32];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  std::uint32_t largest = 0;
  if (static_cast<int>(threadIdx.x) < args.blocks)
    largest = args.largest[static_cast<std::size_t>(blockIdx.x) * args.blocks + threadIdx.x];
  const float m = __uint_as_float(dynamic::largest_of_block(largest, of_warps));
  float scale = 1, inverse = 1;
  if (!(m < INFINITY)) {
    scale = inverse = NAN;
  } else if (m >= 127 * FLT_MIN) {
    scale = __fdiv_rn(m, 127.0F), inverse = __fdiv_rn(127.0F, m);
  }
  if (blockIdx.y == 0 && threadIdx.x == 0) args.scales[blockIdx.x] = scale;
  const auto integer = [&](float v) {
    return static_cast<std::int8_t>(whole_steps(__fmul_rn(v, inverse), -127.0F, 127.0F));
  };
  if (!args.vectors) {
    dynamic::for_each_run<1>(args, [&](std::int64_t at, const float(&v)[1]) { args.y[at] = integer(v[0]); });
    return;
  }
  dynamic::for_each_run<8>(args, [&](std::int64_t at, const float(&v)[8]) {
    struct alignas(8) Bytes {
      std::int8_t v[8];
    } bytes;
#pragma unroll
    for (int k = 0; k < 8; ++k) bytes.v[k] = integer(v[k]);
    *reinterpret_cast<Bytes*>(args.y + at) = bytes;
  });
}

}  // namespace pipit::internal::cuda
