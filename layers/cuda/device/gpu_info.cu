#include "layers/cuda/device/gpu_info.h"

#include "engine/cuda/runtime.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace {

// Has a body where kernels for Hopper have one.
__global__ void probe(int* y) {
#ifdef PIPIT_WARPGROUP_MMA
  __shared__ int shared[32];
  shared[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = shared[31 - threadIdx.x];
#endif
}

}  // namespace

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
  PIPIT_CUDA(has_body(reinterpret_cast<const void*>(&probe), result));
  return result;
}

}  // namespace pipit::internal::cuda
