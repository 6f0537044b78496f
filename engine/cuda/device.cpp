// Looks for NVIDIA GPUs through the (statically linked) CUDA runtime, which loads the driver on first use.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"

namespace pipit::internal {

namespace {

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  PIPIT_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

// What was free on the current GPU when this process first asked, which is when its context was made.
std::size_t free_at_first(int gpu) {
  static std::mutex mutex;
  static auto& at_first = *new std::map<int, std::size_t>;
  const std::lock_guard lock(mutex);
  const auto known = at_first.find(gpu);
  return known != at_first.end() ? known->second : at_first[gpu] = free_memory();
}

}  // namespace

CudaStatus cuda_status() {
  CudaStatus status;
  status.compiled = true;
  status.toolkit = fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    status.problem =
        driver == 0
            ? "no NVIDIA driver was found on this machine"
            : fmt::format("the NVIDIA driver supports CUDA {}.{}, this build needs {}; update the driver",
                          driver / 1000, driver % 1000 / 10, status.toolkit);
    return status;
  }
  if (found != cudaSuccess || count == 0) {
    status.problem = found == cudaSuccess ? "no GPU was found"
                                          : fmt::format("no usable GPU: {}", cudaGetErrorString(found));
    return status;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) status.devices.emplace_back(properties.name);
  }
  if (status.devices.empty()) status.problem = "GPUs were found but none answered";
  return status;
}

std::string gpu_description(int gpu) {
  static std::mutex mutex;
  static auto& known = *new std::map<int, std::string>;  // asking the driver takes milliseconds
  const std::lock_guard lock(mutex);
  std::string& text = known[gpu];
  if (!text.empty()) return text;
  select_gpu(gpu);
  cudaDeviceProp properties{};
  PIPIT_CUDA(cudaGetDeviceProperties(&properties, gpu));
  int driver = 0;
  PIPIT_CUDA(cudaDriverGetVersion(&driver));
  const CudaLibraries libraries = cuda_libraries();
  text = fmt::format("{}, driver for CUDA {}.{}, runtime {}.{}, cuBLASLt {}, cuDNN {}", properties.name,
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                     libraries.cublaslt, libraries.cudnn);
  return text;
}

std::size_t gpu_memory(int gpu) {
  select_gpu(gpu);
  std::size_t free = 0;
  std::size_t total = 0;
  PIPIT_CUDA(cudaMemGetInfo(&free, &total));
  return total;
}

void select_gpu(int gpu) {
  require_device(DeviceKind::cuda);
  int count = 0;
  PIPIT_CUDA(cudaGetDeviceCount(&count));
  if (gpu < 0 || gpu >= count) fail("there is no GPU {}: this machine has {} (numbered from 0)", gpu, count);
  PIPIT_CUDA(cudaSetDevice(gpu));
  (void)free_at_first(gpu);
}

DeviceMemory device_memory(int gpu) {
  select_gpu(gpu);
  const std::size_t before = free_at_first(gpu);
  const std::size_t now = free_memory();
  const cuda::BufferBytes buffers = cuda::buffer_bytes(gpu);
  DeviceMemory memory;
  // Memory that other processes gave back meanwhile must not hide our own buffers.
  memory.held = std::max(before - std::min(before, now), buffers.now);
  memory.peak = memory.held + (buffers.peak - buffers.now);
  return memory;
}

}  // namespace pipit::internal
