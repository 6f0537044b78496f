// Kernels of the candidate "pooled_stem" and their launch.
#include "layers/cuda/chain/pooled_stem_kernel.cuh"
#include "layers/cuda/device/overlap.cuh"

namespace pipit::cuda {

cudaError_t has_pooled_stem(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, run_pooled_stem<float>);
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_pooled_stem(bool int8) {
  const auto prepare = [](auto kernel) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kPooledStemMostShared + 1024);
  };
  return int8 ? prepare(run_pooled_stem<std::int32_t>) : prepare(run_pooled_stem<float>);
}

cudaError_t launch_pooled_stem(const PooledStemArgs& args, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    const auto shared = static_cast<std::size_t>(args.plan.shared_bytes) + 1024;  // for the alignment
    return launch_overlapping_shared(kernel, dim3(static_cast<unsigned>(args.workers)),
                                     dim3(pooled_stem::kThreads), shared, true, stream, args);
  };
  return args.plan.shape.element_bytes == 1 ? launch(run_pooled_stem<std::int32_t>)
                                            : launch(run_pooled_stem<float>);
}

}  // namespace pipit::cuda
