// Kernels of the candidate "resident_block" and their launch.
#include "layers/cuda/conv/resident_block/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

template <typename Sum>
const void* function_of(BlockAdds adds) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  switch (adds) {
    case BlockAdds::x:
      return of(&run_resident_block<Sum, BlockAdds::x>);
    case BlockAdds::projection:
      return of(&run_resident_block<Sum, BlockAdds::projection>);
    case BlockAdds::tail:
      return of(&run_resident_block<Sum, BlockAdds::tail>);
    default:
      return of(&run_resident_block<Sum, BlockAdds::nothing>);
  }
}

const void* function_of(const BlockPlan& plan) {
  return plan.element_bytes == 1 ? function_of<std::int32_t>(plan.adds) : function_of<float>(plan.adds);
}

}  // namespace

cudaError_t prepare_resident_block(const BlockPlan& plan) {
  return allow_shared(function_of(plan), kBlockMaxShared - kBlockReserved + 1024);
}

cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.workers)),
                    dim3(static_cast<unsigned>(block_groups(args.plan.element_bytes) * 128 + 128))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  shape.overlap = true;
  return launch_kernel(function_of(args.plan), shape, stream, args);
}

}  // namespace pipit::internal::cuda
