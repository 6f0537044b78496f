#include <type_traits>

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/ceiling_probe.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace {

constexpr int kTensorThreads = 128;  // a warpgroup
constexpr int kTensorBlocks = 4;     // whose registers and shared memory a multiprocessor has
// The product of a step: rows of 128 bytes, 64 of a and 128 of b.
constexpr int kRows = 64, kColumns = 128, kRowBytes = 128;
constexpr int kChains = 8;  // independent sums of a thread
constexpr int kFloatThreads = 256;
constexpr int kFloatBlocks = 8;
constexpr int kFloatSums = 64;  // multiply-adds of each chain in a step
constexpr int kMemoryThreads = 512;

// Numbers that look random: arithmetic on zeros would need less power, and run at a higher clock rate.
__device__ __forceinline__ std::uint32_t scrambled(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  return x ^ x >> 16;
}

// Two halves or bfloat16 between 0.125 and 0.25 of either sign, or four bytes.
template <typename Sum>
__device__ __forceinline__ std::uint32_t random_operands(std::uint32_t seed) {
  const std::uint32_t bits = scrambled(seed);
  if (std::is_same_v<Sum, BfloatSum>) return (bits & 0x807F807FU) | 0x3E003E00U;
  return std::is_same_v<Sum, float> ? (bits & 0x83FF83FFU) | 0x30003000U : bits;
}

template <typename Sum>
__global__ void __launch_bounds__(kTensorThreads, kTensorBlocks) tensor_products(int steps, Sum* never) {
  Sum sums[16][4] = {};
#ifdef PIPIT_WARPGROUP_MMA
  __shared__ alignas(1024) std::uint32_t operands[(kRows + kColumns) * kRowBytes / 4];
  for (std::uint32_t i = threadIdx.x; i < (kRows + kColumns) * kRowBytes / 4; i += kTensorThreads)
    operands[i] = random_operands<Sum>(i);
  ptx::publish_shared();
  __syncthreads();
  const std::uint32_t a = ptx::shared_address(operands);
  const std::uint32_t b = a + kRows * kRowBytes;
  for (; steps > 0; --steps) {
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kRowBytes; k += 32)
      ptx::multiply_group(sums, ptx::matrix_descriptor(a + k), ptx::matrix_descriptor(b + k));
    ptx::end_products();
    ptx::wait_products();
  }
#else
  std::uint32_t a[4], b[2];
  for (std::uint32_t i = 0; i < 4; ++i) a[i] = random_operands<Sum>(threadIdx.x * 8 + i);
  for (std::uint32_t i = 0; i < 2; ++i) b[i] = random_operands<Sum>(threadIdx.x * 8 + 4 + i);
  // Each of the four warps has 16 of the rows, and all columns.
  for (; steps > 0; --steps) {
#pragma unroll
    for (int k = 0; k < kRowBytes; k += 32) {
#pragma unroll
      for (int j = 0; j < 16; ++j) ptx::multiply(sums[j], a, b[0], b[1]);
    }
  }
#endif
  Sum total = 0;
#pragma unroll
  for (int j = 0; j < 16; ++j) total += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
  if (never != nullptr) never[threadIdx.x] = total;
}

__global__ void __launch_bounds__(kFloatThreads, kFloatBlocks) float_products(int steps, float* never) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float a = 1.0F - static_cast<float>(scrambled(threadIdx.x) & 0xFFU) * 1e-6F;
  const float b = static_cast<float>(scrambled(threadIdx.x + 1) & 0xFFU) * 1e-3F;
  for (; steps > 0; --steps) {
#pragma unroll
    for (int j = 0; j < kFloatSums; ++j) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) sums[i] = __fmaf_rn(sums[i], a, b);
    }
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += sums[i];
  if (never != nullptr) never[threadIdx.x] = total;
}

template <MemoryLoop Loop>
__global__ void __launch_bounds__(kMemoryThreads)
    memory_loop(const float4* a, const float4* b, float4* c, std::int64_t n, int passes) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMemoryThreads;
  float4 sum = {};
  for (; passes > 0; --passes) {
#pragma unroll 4
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMemoryThreads + threadIdx.x; i < n;
         i += step) {
      float4 x = {};
      if constexpr (Loop != MemoryLoop::write) x = __ldcg(a + i);
      if constexpr (Loop == MemoryLoop::add) {
        const float4 y = __ldcg(b + i);
        x = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
      }
      if constexpr (Loop == MemoryLoop::read) {
        sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
      } else {
        __stcg(c + i, x);
      }
    }
  }
  // Never so: it keeps the sums.
  if (Loop == MemoryLoop::read && sum.x + sum.y + sum.z + sum.w == 1.5e30F) c[0] = sum;
}

__global__ void nothing() {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
}

}  // namespace

void launch_products(Products products, int blocks, int steps, cudaStream_t stream) {
  switch (products) {
    case Products::fp16:
      tensor_products<float><<<blocks, kTensorThreads, 0, stream>>>(steps, nullptr);
      break;
    case Products::bf16:
      tensor_products<BfloatSum><<<blocks, kTensorThreads, 0, stream>>>(steps, nullptr);
      break;
    case Products::int8:
      tensor_products<int><<<blocks, kTensorThreads, 0, stream>>>(steps, nullptr);
      break;
    default:
      float_products<<<blocks, kFloatThreads, 0, stream>>>(steps, nullptr);
  }
  check_launch("products");
}

double products_of_step(Products products) {
  if (products == Products::fp32) return double{kFloatThreads} * kChains * kFloatSums;
  return double{kRows} * kColumns * (products == Products::int8 ? kRowBytes : kRowBytes / 2);
}

int blocks_per_processor(Products products) {
  return products == Products::fp32 ? kFloatBlocks : kTensorBlocks;
}

void launch_memory(MemoryLoop loop, const float* a, const float* b, float* c, std::int64_t n, int passes,
                   int blocks, cudaStream_t stream) {
  const auto* from = reinterpret_cast<const float4*>(a);
  const auto* with = reinterpret_cast<const float4*>(b);
  auto* to = reinterpret_cast<float4*>(c);
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, kMemoryThreads, 0, stream>>>(from, with, to, n / 4, passes);
    check_launch("memory_loop");
  };
  switch (loop) {
    case MemoryLoop::read:
      return launch(memory_loop<MemoryLoop::read>);
    case MemoryLoop::write:
      return launch(memory_loop<MemoryLoop::write>);
    case MemoryLoop::copy:
      return launch(memory_loop<MemoryLoop::copy>);
    case MemoryLoop::add:
      return launch(memory_loop<MemoryLoop::add>);
  }
}

void launch_nothing(bool overlap, cudaStream_t stream) {
  bool can = false;
  if (overlap) check(can_overlap(reinterpret_cast<const void*>(nothing), can), "nothing");
  check(launch_kernel(nothing, {dim3(1), dim3(32), 0, can}, stream), "nothing");
}

}  // namespace pipit::internal::cuda
