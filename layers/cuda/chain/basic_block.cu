// Kernels of the candidate "basic_block" and their launch.
#include "layers/cuda/chain/basic_block_kernel.cuh"

namespace pipit::cuda {

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

cudaError_t has_basic_block(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(BasicBlockPlan{}));
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_basic_block(const BasicBlockPlan& plan) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function_of(plan), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kBlockMostShared - kBlockReserved + 1024);
}

cudaError_t launch_basic_block(const BasicBlockArgs& args, cudaStream_t stream) {
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
  BasicBlockArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(args.plan), parameters);
}

}  // namespace pipit::cuda
