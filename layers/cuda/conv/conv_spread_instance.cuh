// The launch of an instance of "spread_gemm", apart from the kernel, which is also compiled for a CPU.
#pragma once

#include "layers/cuda/conv/conv_spread_kernel.cuh"

namespace pipit::cuda {

inline cudaError_t prepare_spread_instance(const void* function) {
  // The most of any plan: the function is everybody's.
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSpreadShared - kSpreadReserved);
}

inline cudaError_t launch_spread_instance(const void* function, const SpreadArgs& args, cudaStream_t stream) {
  const auto slices = static_cast<unsigned>(args.plan.slices);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = slices;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(ceil_div(args.conv.rows, kSpreadRows) * args.conv.column_tiles) * slices);
  config.blockDim = dim3(kSpreadThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes());
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = slices > 1 ? 2 : 1;
  SpreadArgs copy = args;
  void* parameters[] = {&copy};
  return cudaLaunchKernelExC(&config, function, parameters);
}

}  // namespace pipit::cuda
