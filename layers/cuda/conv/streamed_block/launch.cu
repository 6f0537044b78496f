// Kernels of the candidate "streamed_block" and their launch.
#include "layers/cuda/conv/streamed_block/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(const StreamedBlockArgs& args) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (args.plan.adds_x)
    return args.small_sums ? of(&run_streamed_block<true, true>) : of(&run_streamed_block<true, false>);
  return args.small_sums ? of(&run_streamed_block<false, true>) : of(&run_streamed_block<false, false>);
}

}  // namespace

cudaError_t prepare_streamed_block(const StreamedBlockArgs& args) {
  return allow_shared(function_of(args), kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_streamed_block(const StreamedBlockArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.plan.workers)),
                    dim3(static_cast<unsigned>(streamed_block::kThreads))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  shape.overlap = true;
  return launch_kernel(function_of(args), shape, stream, args);
}

}  // namespace pipit::internal::cuda
