// Kernels of the candidate "projected_sum" and their launch.
#include "layers/cuda/conv/projected_sum/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(const ProjectedSumArgs& args) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (args.plan.element_bytes == 2)
    return args.plan.bf16 ? of(&run_projected_sum<BfloatSum, true>) : of(&run_projected_sum<float, true>);
  return args.small_sums ? of(&run_projected_sum<std::int32_t, true>)
                         : of(&run_projected_sum<std::int32_t, false>);
}

}  // namespace

cudaError_t prepare_projected_sum(const ProjectedSumArgs& args) {
  return allow_shared(function_of(args), kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_projected_sum(const ProjectedSumArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.plan.workers * args.plan.slices)),
                    dim3(static_cast<unsigned>(projected_sum::kThreads))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  shape.overlap = true;
  return launch_kernel(function_of(args), shape, stream, args);
}

}  // namespace pipit::internal::cuda
