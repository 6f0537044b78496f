// What pipit says about a GPU: the memory that it holds there, and what the card can do at best.
#include "engine/cuda/library.h"
#include "engine/cuda/runtime.h"
#include "layers/gpu_peak.h"
#include "tests/cuda/conformance.h"

namespace pipit::test {
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

TEST(GpuDevice, PeaksAreMeasured) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = cuda::cublaslt().problem; !problem.empty()) GTEST_SKIP() << problem;
  const std::size_t buffers = cuda::buffer_bytes(0).now;
  const MachinePeak single = measure_gpu_peak(0, Precision::fp32);
  const MachinePeak half = measure_gpu_peak(0, Precision::fp16);
  // Far below every card of compute capability 8.0, far above what a wrong unit would give.
  for (const MachinePeak& peak : {single, half}) {
    EXPECT_GT(peak.bytes_per_second, 5e10);
    EXPECT_LT(peak.bytes_per_second, 1e14);
    EXPECT_GT(peak.flops_per_second, 1e12);
    EXPECT_LT(peak.flops_per_second, 1e17);
  }
  EXPECT_GT(half.flops_per_second, 1.5 * single.flops_per_second) << "TF32 instead of fp32?";
  EXPECT_EQ(cuda::buffer_bytes(0).now, buffers) << "memory was not given back";
  EXPECT_THROW((void)measure_gpu_peak(0, Precision::int8), Error);
  EXPECT_THROW((void)measure_gpu_peak(4096, Precision::fp16), Error);
}

}  // namespace
}  // namespace pipit::test
