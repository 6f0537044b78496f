// Kernels of the candidate "squeeze_excite" and their launch.
#include "layers/cuda/chain/squeeze_excite_kernel.cuh"

namespace pipit::cuda {

namespace {

const void* function_of(int element_bytes) {
  return element_bytes == 1 ? reinterpret_cast<const void*>(&run_squeeze_excite<SqueezeInt8>)
                            : reinterpret_cast<const void*>(&run_squeeze_excite<SqueezeHalf>);
}

}  // namespace

cudaError_t has_squeeze_excite(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(1));
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_squeeze_excite(int element_bytes) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function_of(element_bytes), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSqueezeShared);
}

cudaError_t launch_squeeze_excite(const SqueezeArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.plan.blocks);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = blocks;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.plan.shape.images) * blocks);
  config.blockDim = dim3(kSqueezeThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = blocks > 1 ? 2 : 1;
  SqueezeArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(args.plan.shape.element_bytes), parameters);
}

}  // namespace pipit::cuda
