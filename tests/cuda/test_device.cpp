// What pipit says about a GPU: the memory that it holds there, and what the card can do at best.
#include "engine/cuda/library.h"
#include "engine/cuda/runtime.h"
#include "layers/gpu_ceilings.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal::test {
namespace {

TEST(GpuDevice, MemoryCountsBuffersNowAndAtWorst) {
  PIPIT_NEEDS_GPU();
  constexpr std::size_t kBytes = std::size_t{192} << 20;
  const DeviceMemory before = device_memory(0);
  const cuda::BufferBytes buffers = cuda::buffer_bytes(0);
  {
    cuda::DeviceBuffer buffer(kBytes);
    cuda::DeviceBuffer moved;
    moved = std::move(buffer);  // counts once
    EXPECT_EQ(cuda::buffer_bytes(0).now, buffers.now + kBytes);
    const DeviceMemory during = device_memory(0);
    // The driver hands out memory in pages of 2 MiB, and may keep some that an earlier test gave back.
    EXPECT_GE(during.held, buffers.now + kBytes);
    EXPECT_LE(during.held, before.held + kBytes + (std::size_t{4} << 20));
    EXPECT_GE(during.peak, during.held);
  }
  const cuda::BufferBytes after_buffers = cuda::buffer_bytes(0);
  EXPECT_EQ(after_buffers.now, buffers.now);
  EXPECT_GE(after_buffers.peak, buffers.now + kBytes);
  const DeviceMemory after = device_memory(0);
  EXPECT_LT(after.held, before.held + kBytes / 2);
  EXPECT_GE(after.peak, after.held + kBytes);
}

TEST(GpuDevice, CeilingsAreMeasured) {
  PIPIT_NEEDS_GPU();
  const std::size_t buffers = cuda::buffer_bytes(0).now;
  const Ceilings ceilings = measure_gpu_ceilings(0);
  ASSERT_TRUE(ceilings.known());
  const auto flops = [&](Products products) { return ceilings.find(products)->flops.best; };
  // Far below every card of compute capability 8.0, far above what a wrong unit would give.
  for (const Products products : {Products::fp32, Products::fp16, Products::int8}) {
    EXPECT_GT(flops(products), 1e12);
    EXPECT_LT(flops(products), 1e17);
  }
  EXPECT_GT(flops(Products::fp16), 1.5 * flops(Products::fp32)) << "not on tensor cores?";
  EXPECT_GT(flops(Products::int8), 1.3 * flops(Products::fp16));
  ASSERT_EQ(ceilings.memory.size(), 2U);
  for (const MemoryCeiling& memory : ceilings.memory) {
    for (const MeasuredRate& rate : {memory.read, memory.write, memory.copy, memory.add}) {
      EXPECT_GT(rate.best, 5e10) << memory.name;
      EXPECT_LT(rate.best, 1e14) << memory.name;
    }
  }
  EXPECT_GT(ceilings.memory[0].read.best, ceilings.memory[1].read.best);
  EXPECT_GT(ceilings.launches.best, 1e4);
  EXPECT_LT(ceilings.launches.best, 1e8);
  EXPECT_GT(ceilings.launches.best, ceilings.synchronizations.best);
  EXPECT_EQ(cuda::buffer_bytes(0).now, buffers) << "memory was not given back";
  EXPECT_THROW((void)measure_gpu_ceilings(4096), Error);
}

}  // namespace
}  // namespace pipit::internal::test
