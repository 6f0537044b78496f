// Kernels of the candidate "row_chain" and their launch.
#include <array>

#include "layers/cuda/conv/row_chain/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(ChainElement element) {
  switch (element) {
    case ChainElement::i8:
      return reinterpret_cast<const void*>(&run_row_chain<std::int32_t>);
    case ChainElement::bf16:
      return reinterpret_cast<const void*>(&run_row_chain<BfloatSum>);
    default:
      return reinterpret_cast<const void*>(&run_row_chain<float>);
  }
}

cudaLaunchAttribute cluster_of(int ranks) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(ranks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  return cluster;
}

}  // namespace

cudaError_t prepare_row_chain(ChainElement element) {
  const void* function = function_of(element);
  // The maximum of all plans: they share the function.
  if (const cudaError_t status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      kRowBlockShared - kRowReserved);
      status != cudaSuccess)
    return status;
  return cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

cudaError_t row_chain_clusters(ChainElement element, int ranks, int shared_bytes, int& clusters) {
  // An older version of the kernel does nothing.
  cudaFuncAttributes attributes{};
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, function_of(element));
      status != cudaSuccess)
    return status;
  clusters = 0;
  if (attributes.ptxVersion < 90) return cudaSuccess;
  if (const cudaError_t status = prepare_row_chain(element); status != cudaSuccess) return status;
  cudaLaunchAttribute cluster = cluster_of(ranks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ranks));
  config.blockDim = dim3(kRowThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&clusters, function_of(element), &config);
}

cudaError_t launch_row_chain(ChainElement element, int shared_bytes, const RowChainArgs& args,
                             cudaStream_t stream) {
  std::array<cudaLaunchAttribute, 3> attributes{};
  attributes[0] = cluster_of(args.ranks);
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  attributes[2].id = cudaLaunchAttributeCooperative;
  attributes[2].val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.images * args.height * args.ranks));
  config.blockDim = dim3(kRowThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = 3;
  RowChainArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function_of(element), parameters);
}

}  // namespace pipit::internal::cuda
