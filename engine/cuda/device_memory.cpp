#include "engine/platform/device_memory.h"

#include <fmt/format.h>

#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"

namespace pipit::internal {

std::byte* allocate_on_gpu(std::size_t bytes, int gpu) {
  require_device(DeviceKind::cuda);
  const cuda::CurrentGpu current;
  select_gpu(gpu);
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail("CUDA: out of memory: {} bytes of GPU {} are not to be had", bytes, gpu);
  }
  cuda::check(status, "cudaMalloc");
  return static_cast<std::byte*>(data);
}

void free_on_gpu(std::byte* data) {
  if (data != nullptr) (void)cudaFree(data);
}

void copy_on_stream(int gpu, void* to, const void* from, std::size_t bytes, void* stream) {
  const cuda::CurrentGpu current(gpu);
  const auto on = static_cast<cudaStream_t>(stream);
  PIPIT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on));
  PIPIT_CUDA(cudaStreamSynchronize(on));
}

void order_gpu_streams(int gpu, void* before, void* after) {
  if (before == after) return;
  const cuda::CurrentGpu current(gpu);
  const cuda::Event event;  // what waits for it keeps what it needs
  event.record(static_cast<cudaStream_t>(before));
  cuda::Stream::wait(static_cast<cudaStream_t>(after), event);
}

}  // namespace pipit::internal
