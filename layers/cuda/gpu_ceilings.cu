// Ceilings of a GPU, and the kernels that they are measured with, which do one thing only, as fast as the GPU can.
#include <cuda_runtime_api.h>
#include <fmt/chrono.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <type_traits>

#include "engine/base/clock.h"
#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"
#include "engine/platform/machine_identity.h"
#include "engine/platform/products.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/gpu_ceilings.h"

namespace pipit::internal::cuda {

/// The loops of STREAM (McCalpin 1995).
enum class MemoryLoop : std::uint8_t { read, write, copy, add };

/// Launches `blocks` blocks, each of which does `steps` steps of multiply-accumulates: of halves and bytes on tensor
/// cores (warpgroup products on Hopper), whose operands are random and lie in shared memory or registers, of floats in
/// registers. Nothing else is read, and nothing written. fp32, fp16 or int8.
void launch_products(Products products, int blocks, int steps, cudaStream_t stream);
/// Multiply-accumulates of a block in a step, and how many blocks a multiprocessor is to have.
double products_of_step(Products products);
int blocks_per_processor(Products products);

/// Goes `passes` times through n floats of a, b and c, of which the loop reads and writes what its name says; through
/// the second-level cache only. n is a multiple of 4, and addresses of 16 bytes.
void launch_memory(MemoryLoop loop, const float* a, const float* b, float* c, std::int64_t n, int passes,
                   int blocks, cudaStream_t stream);

/// A kernel of one block without work; with `overlap` one that may begin while the previous kernel still runs, where
/// the GPU has that.
void launch_nothing(bool overlap, cudaStream_t stream);

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

// Two halves between 0.125 and 0.25 of either sign, or four bytes.
template <typename Sum>
__device__ __forceinline__ std::uint32_t random_operands(std::uint32_t seed) {
  const std::uint32_t bits = scrambled(seed);
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
  return double{kRows} * kColumns * (products == Products::fp16 ? kRowBytes / 2 : kRowBytes);
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

namespace pipit::internal {

namespace {

using cuda::DeviceBuffer;
using cuda::MemoryLoop;

constexpr double kRoundMs = 8;
constexpr int kMaxSteps = 1 << 24;

// What the probes share.
class Probe {
 public:
  explicit Probe(int gpu) { PIPIT_CUDA(cudaGetDeviceProperties(&device_, gpu)); }

  int processors() const { return device_.multiProcessorCount; }
  std::int64_t second_cache() const { return device_.l2CacheSize; }
  std::size_t memory() const { return device_.totalGlobalMem; }
  const cuda::Stream& stream() const { return stream_; }

  // Milliseconds of what `body` launches.
  double milliseconds(const std::function<void()>& body) const {
    begin_.record(stream_);
    body();
    end_.record(stream_);
    stream_.synchronize();
    return end_.since(begin_);
  }

  // The rate of launch(steps), `amount` in each of the steps, of which there are as many as take kRoundMs.
  MeasuredRate rate(double amount, const std::function<void(int)>& launch) const {
    int steps = 1;
    const auto ms_of_steps = [&] { return milliseconds([&] { launch(steps); }); };
    ms_of_steps();  // loads the kernel's code
    for (double ms = ms_of_steps(); ms < kRoundMs / 2 && steps < kMaxSteps; ms = ms_of_steps())
      steps *= std::clamp(static_cast<int>(kRoundMs / std::max(ms, 1e-3)), 2, 64);
    return measure_rate([&] { return 1e3 * amount * steps / ms_of_steps(); });
  }

 private:
  cudaDeviceProp device_{};
  cuda::Stream stream_;
  cuda::Event begin_, end_;
};

void measure_arithmetic(const Probe& probe, Ceilings& ceilings) {
  for (const Products products : {Products::fp32, Products::fp16, Products::int8}) {
    const int blocks = probe.processors() * cuda::blocks_per_processor(products);
    const double operations = 2 * cuda::products_of_step(products) * blocks;
    ceilings.arithmetic.push_back(
        {products,
         products == Products::fp32 ? "CUDA cores" : "tensor cores",
         probe.rate(operations,
                    [&](int steps) { cuda::launch_products(products, blocks, steps, probe.stream()); }),
         {}});
  }
}

const MeasuredRate& faster(const MeasuredRate& one, const MeasuredRate& other) {
  return one.best >= other.best ? one : other;
}

// The loops on `bytes` of operands together.
MemoryCeiling measure_memory(const Probe& probe, const std::string& name, std::size_t bytes) {
  constexpr std::size_t kUnit = 4096;
  constexpr int kBlocksPerProcessor = 4;
  const DeviceBuffer buffer(bytes / 3 / kUnit * kUnit * 3);
  PIPIT_CUDA(cudaMemsetAsync(buffer.data(), 0, buffer.bytes(), probe.stream()));
  const auto measure = [&](MemoryLoop loop, int operands) {
    const std::size_t each = buffer.bytes() / static_cast<std::size_t>(operands) / kUnit * kUnit;
    const auto n = static_cast<std::int64_t>(each / sizeof(float));
    auto* const data = buffer.as<float>();
    return probe.rate(static_cast<double>(each) * operands, [&](int passes) {
      // The last one is what is written.
      cuda::launch_memory(loop, data, data + (operands > 2 ? n : 0), data + (operands - 1) * n, n, passes,
                          probe.processors() * kBlocksPerProcessor, probe.stream());
    });
  };
  MemoryCeiling memory;
  memory.name = name;
  memory.read = measure(MemoryLoop::read, 1);
  memory.write = measure(MemoryLoop::write, 1);
  memory.copy = measure(MemoryLoop::copy, 2);
  memory.add = measure(MemoryLoop::add, 3);
  return memory;
}

// Also by the driver's own copy.
void measure_memories(const Probe& probe, Ceilings& ceilings) {
  // A quarter: the cache may keep what several parts of the GPU read in each of them.
  MemoryCeiling cache = measure_memory(probe, "L2", static_cast<std::size_t>(probe.second_cache() / 4));
  cache.bytes = probe.second_cache();
  const std::size_t bytes = std::min(std::size_t{1} << 31, probe.memory() / 16);
  MemoryCeiling memory = measure_memory(probe, "memory", bytes);
  const DeviceBuffer from(bytes / 2), to(bytes / 2);
  memory.copy =
      faster(memory.copy, probe.rate(static_cast<double>(from.bytes() + to.bytes()), [&](int steps) {
        for (int i = 0; i < steps; ++i)
          PIPIT_CUDA(
              cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, probe.stream()));
      }));
  ceilings.memory = {std::move(cache), std::move(memory)};
}

// The rate of consecutive kernels without work in a captured graph.
MeasuredRate launches(const Probe& probe, bool overlap) {
  constexpr int kKernels = 1000;
  const cuda::Graph graph(probe.stream(), [&] {
    for (int i = 0; i < kKernels; ++i) cuda::launch_nothing(overlap, probe.stream());
  });
  const auto ms = [&] { return probe.milliseconds([&] { graph.launch(probe.stream()); }); };
  ms();  // the first launch of a graph also uploads it
  return measure_rate([&] { return 1e3 * kKernels / ms(); });
}

void measure_launches(const Probe& probe, Ceilings& ceilings) {
  cuda::launch_nothing(false, probe.stream());  // loads the kernel's code
  probe.stream().synchronize();
  ceilings.launches = faster(launches(probe, false), launches(probe, true));
  ceilings.synchronizations = measure_rate([&] {
    constexpr int kTimes = 200;
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      cuda::launch_nothing(false, probe.stream());
      probe.stream().synchronize();
    }
    return 1e3 * kTimes / milliseconds_since(begin);
  });
}

}  // namespace

Ceilings measure_gpu_ceilings(int gpu, const CeilingsProgress& progress) {
  select_gpu(gpu);
  const Clock::time_point begin = Clock::now();
  const Probe probe(gpu);
  Ceilings ceilings;
  ceilings.device = DeviceKind::cuda;
  ceilings.machine = machine_identity(ceilings.device, gpu, 0);
  ceilings.measured_at = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  constexpr int kSteps = 3;
  const auto done = [&](int steps) {
    if (progress) progress(steps, kSteps);
  };
  measure_arithmetic(probe, ceilings);
  done(1);
  measure_memories(probe, ceilings);
  done(2);
  measure_launches(probe, ceilings);
  done(3);
  ceilings.seconds = milliseconds_since(begin) / 1e3;
  return ceilings;
}

}  // namespace pipit::internal
