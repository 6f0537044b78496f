// For gpu_info.cpp, which also compiles without nvcc.
#pragma once

#include <cuda_runtime_api.h>

namespace pipit::internal::cuda {

/// Whether what the current GPU runs was compiled with PIPIT_WARPGROUP_MMA (warpgroup_mma.cuh).
cudaError_t probe_hopper_kernels(bool& result);

}  // namespace pipit::internal::cuda
