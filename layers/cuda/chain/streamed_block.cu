// Kernels of the candidate "streamed_block" and their launch.
#include "layers/cuda/chain/streamed_block_kernel.cuh"

namespace pipit::cuda {

namespace {

const void* function_of(bool adds_x, bool small_sums) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (adds_x) return small_sums ? of(&run_streamed_block<true, true>) : of(&run_streamed_block<true, false>);
  return small_sums ? of(&run_streamed_block<false, true>) : of(&run_streamed_block<false, false>);
}

const void* function_of(const StreamedBlockArgs& args) {
  return function_of(args.plan.adds_x, args.small_sums);
}

}  // namespace

cudaError_t has_streamed_block(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(false, false));
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_streamed_block(const StreamedBlockArgs& args) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function_of(args), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kBlockMostShared - kBlockReserved + 1024);
}

cudaError_t launch_streamed_block(const StreamedBlockArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.plan.workers));
  config.blockDim = dim3(static_cast<unsigned>(streamed_block::kThreads));
  config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes() - kBlockReserved + 1024);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  StreamedBlockArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(args), parameters);
}

}  // namespace pipit::cuda
