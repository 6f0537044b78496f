// Launches that may begin while the kernel in front still runs (programmatic dependent launch). Such a kernel calls
// ptx::wait_for_previous_kernel in every thread before it reads what others computed and before it writes anything:
// memory of the arena that it writes may still be read by the kernels in front.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pipit::cuda {

/// Whether what the current GPU runs of this kernel was compiled for 9.0 or later: an older version does not wait.
inline cudaError_t can_overlap(const void* kernel, bool& result) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  result = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

/// shared_bytes: of dynamic shared memory.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_overlapping_shared(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                      std::size_t shared_bytes, bool overlap, cudaStream_t stream,
                                      const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_overlapping(void (*kernel)(Parameters...), dim3 grid, dim3 block, bool overlap,
                               cudaStream_t stream, const Arguments&... arguments) {
  return launch_overlapping_shared(kernel, grid, block, 0, overlap, stream, arguments...);
}

}  // namespace pipit::cuda
