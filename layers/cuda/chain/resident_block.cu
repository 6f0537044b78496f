// Kernels of the candidate "resident_block" and their launch.
#include "layers/cuda/chain/resident_block_kernel.cuh"

namespace pipit::cuda {

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

cudaError_t has_resident_block(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(BlockPlan{}));
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_resident_block(const BlockPlan& plan) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function_of(plan), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kBlockMostShared - kBlockReserved + 1024);
}

cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.workers));
  config.blockDim = dim3(static_cast<unsigned>(block_groups(args.plan.element_bytes) * 128 + 128));
  config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  ResidentBlockArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(args.plan), parameters);
}

}  // namespace pipit::cuda
