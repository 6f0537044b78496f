// Kernels of the candidate "basic_block" and their launch.
#include "layers/cuda/conv/basic_block/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

template <typename Sum>
const void* function_of(bool adds_x) {
  return adds_x ? reinterpret_cast<const void*>(&run_basic_block<Sum, true>)
                : reinterpret_cast<const void*>(&run_basic_block<Sum, false>);
}

const void* function_of(const BasicBlockPlan& plan) {
  return plan.element_bytes == 1 ? function_of<std::int32_t>(plan.adds_x) : function_of<float>(plan.adds_x);
}

}  // namespace

cudaError_t prepare_basic_block(const BasicBlockPlan& plan) {
  return allow_shared(function_of(plan), kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_basic_block(const BasicBlockArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.workers)),
                    dim3(static_cast<unsigned>(block_groups(args.plan.element_bytes) * 128 + 128))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  shape.overlap = true;
  return launch_kernel(function_of(args.plan), shape, stream, args);
}

}  // namespace pipit::internal::cuda
