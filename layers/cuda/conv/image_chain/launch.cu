// Kernels of the candidate "image_chain" and their launch.
#include <array>

#include "layers/cuda/conv/image_chain/kernel.cuh"

namespace pipit::cuda {

namespace {

const void* function_of(const ImageChainPlan& plan, bool small_sums) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (plan.tiles == 1) return small_sums ? of(&run_image_chain<1, true>) : of(&run_image_chain<1, false>);
  return small_sums ? of(&run_image_chain<2, true>) : of(&run_image_chain<2, false>);
}

struct Configured {
  std::array<cudaLaunchAttribute, 2> attributes{};
  cudaLaunchConfig_t config{};

  Configured(const ImageChainPlan& plan, int clusters, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(plan.ranks);
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(static_cast<unsigned>(clusters * plan.ranks));
    config.blockDim = dim3(static_cast<unsigned>(image_chain::kThreads));
    config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes() - kBlockReserved + 1024);
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = 2;
  }
};

}  // namespace

cudaError_t image_chain_clusters(const ImageChainPlan& plan, int& clusters) {
  clusters = 0;
  for (const bool small_sums : {false, true}) {
    const void* function = function_of(plan, small_sums);
    // Compiled for anything else the kernel is empty.
    cudaFuncAttributes attributes{};
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, function); status != cudaSuccess)
      return status;
    if (attributes.sharedSizeBytes == 0) return cudaSuccess;
    // The maximum of all plans: they share the function.
    if (const cudaError_t status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        kBlockMostShared - kBlockReserved + 1024);
        status != cudaSuccess)
      return status;
  }
  Configured how(plan, 1, nullptr);
  how.config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&clusters, function_of(plan, false), &how.config);
}

cudaError_t launch_image_chain(const ImageChainArgs& args, cudaStream_t stream) {
  const Configured how(args.plan, args.clusters, stream);
  ImageChainArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&how.config, function_of(args.plan, args.small_sums), parameters);
}

}  // namespace pipit::cuda
