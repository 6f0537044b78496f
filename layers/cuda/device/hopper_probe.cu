#include "layers/cuda/device/hopper_probe.h"

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

cudaError_t probe_hopper_kernels(bool& result) {
  return has_body(reinterpret_cast<const void*>(&probe), result);
}

}  // namespace pipit::internal::cuda
