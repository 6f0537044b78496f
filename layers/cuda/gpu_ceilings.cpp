#include "layers/gpu_ceilings.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "engine/base/clock.h"
#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"
#include "engine/platform/machine_identity.h"
#include "layers/cuda/device/ceiling_probe.h"

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
  for (const Products products : {Products::fp32, Products::fp16, Products::bf16, Products::int8}) {
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
