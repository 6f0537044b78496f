// Launches with attributes: overlap with the kernel before (programmatic dependent launch), clusters, dynamic shared
// memory. A kernel that overlaps calls ptx::wait_for_previous_kernel in every thread before it reads what others
// computed and before it writes anything: earlier kernels may still read memory of the arena that it writes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pipit::internal::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< of dynamic shared memory
  bool overlap = false;          ///< may begin while the kernel before it still runs; where can_overlap()
  dim3 cluster = dim3(1);        ///< blocks of a cluster, along x and y
};

/// Whether what the current GPU runs of this kernel was compiled for 9.0 or later: an older version does not wait.
inline cudaError_t can_overlap(const void* kernel, bool& result) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  result = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

/// Whether the kernel has a body in what the current GPU runs: kernels for one architecture are compiled empty for
/// others. The kernel must have static shared memory.
inline cudaError_t has_body(const void* kernel, bool& result) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

/// Lets launches of the kernel ask for up to `bytes` of dynamic shared memory. It holds for all launches of a function:
/// give the maximum of all plans.
inline cudaError_t allow_shared(const void* kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/// Blocks of the kernel that the current GPU runs at once, at least one for each multiprocessor.
inline cudaError_t resident_blocks_of(const void* kernel, int threads, std::size_t shared_bytes,
                                      int& blocks) {
  int gpu = 0, processors = 0, of_each = 0;
  cudaError_t status = cudaGetDevice(&gpu);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kernel, threads, shared_bytes);
  blocks = processors * (of_each > 1 ? of_each : 1);
  return status;
}

/// A shape as the runtime wants it; not copied, since `config` points into it.
struct LaunchConfig {
  LaunchConfig(const LaunchShape& shape, cudaStream_t stream)
      : config{shape.grid, shape.block, shape.shared_bytes, stream, attributes, 0} {
    if (shape.overlap) {
      cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
      overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster.x * shape.cluster.y > 1) {
      cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim.x = shape.cluster.x;
      cluster.val.clusterDim.y = shape.cluster.y;
      cluster.val.clusterDim.z = 1;
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config;
};

/// Launches a kernel of one parameter, which is copied.
template <typename Args>
cudaError_t launch_kernel(const void* kernel, const LaunchShape& shape, cudaStream_t stream,
                          const Args& args) {
  const LaunchConfig launch(shape, stream);
  Args copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&launch.config, kernel, parameters);
}

/// Launches a kernel of any parameters, to which the arguments are converted.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                          const Arguments&... arguments) {
  const LaunchConfig launch(shape, stream);
  return cudaLaunchKernelEx(&launch.config, kernel, Parameters(arguments)...);
}

}  // namespace pipit::internal::cuda
