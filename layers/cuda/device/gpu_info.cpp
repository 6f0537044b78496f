#include "layers/cuda/device/gpu_info.h"

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/hopper_probe.h"

namespace pipit::internal::cuda {

int processors_of(int gpu) {
  int processors = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
  return processors;
}

int hopper_processors(int gpu) {
  int major = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  return major >= 9 ? processors_of(gpu) : 0;
}

bool has_hopper_kernels() {
  bool result = false;
  PIPIT_CUDA(probe_hopper_kernels(result));
  return result;
}

}  // namespace pipit::internal::cuda
