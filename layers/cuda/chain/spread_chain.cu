// Kernels of the candidate "spread_chain" and their launch.
#include <array>

#include "layers/cuda/chain/spread_chain_kernel.cuh"
#include "layers/cuda/conv/conv_spread_epilogue.cuh"
#include "layers/cuda/conv/conv_spread_epilogue_int8.cuh"

namespace pipit::cuda {

namespace {

const void* function_of(bool int8) {
  return int8 ? reinterpret_cast<const void*>(&run_spread_chain<std::int32_t, SpreadInt8<false>>)
              : reinterpret_cast<const void*>(&run_spread_chain<float, SpreadHalf<false>>);
}

cudaLaunchAttribute cluster() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kSpreadCluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}

}  // namespace

cudaError_t prepare_spread_chain(bool int8) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function_of(int8), cudaFuncAttributeMaxDynamicSharedMemorySize, kSpreadChainShared);
}

cudaError_t spread_chain_blocks(bool int8, int& blocks) {
  blocks = 0;
  // An older version of the kernel does nothing.
  cudaFuncAttributes attributes{};
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(int8)); status != cudaSuccess)
    return status;
  if (attributes.sharedSizeBytes == 0) return cudaSuccess;
  if (const cudaError_t status = prepare_spread_chain(int8); status != cudaSuccess) return status;
  cudaLaunchAttribute attribute = cluster();
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kSpreadCluster);
  config.blockDim = dim3(kSpreadChainThreads);
  config.dynamicSmemBytes = kSpreadChainShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, function_of(int8), &config);
  blocks = clusters * kSpreadCluster;
  return status;
}

cudaError_t launch_spread_chain(bool int8, int blocks, int shared_bytes, const SpreadChainArgs& args,
                                cudaStream_t stream) {
  std::array<cudaLaunchAttribute, 3> attributes{};
  attributes[0] = cluster();
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  // Blocks wait for each other: all or none must have a place.
  attributes[2].id = cudaLaunchAttributeCooperative;
  attributes[2].val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kSpreadChainThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = 3;
  SpreadChainArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(int8), parameters);
}

}  // namespace pipit::cuda
