// Kernels of the candidate "projected_sum" and their launch.
#include "layers/cuda/conv/projected_sum/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(const ProjectedSumArgs& args) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (args.plan.element_bytes == 2) return of(&run_projected_sum<float, true>);
  return args.small_sums ? of(&run_projected_sum<std::int32_t, true>)
                         : of(&run_projected_sum<std::int32_t, false>);
}

}  // namespace

cudaError_t prepare_projected_sum(const ProjectedSumArgs& args) {
  // The maximum of all plans: they share the function.
  return cudaFuncSetAttribute(function_of(args), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_projected_sum(const ProjectedSumArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.plan.workers * args.plan.slices));
  config.blockDim = dim3(static_cast<unsigned>(projected_sum::kThreads));
  config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  ProjectedSumArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(args), parameters);
}

}  // namespace pipit::internal::cuda
