// The launch of an instance of "spread_gemm", apart from the kernel, which is also compiled for a CPU.
#pragma once

#include "layers/cuda/conv/conv_spread_kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::cuda {

inline cudaError_t prepare_spread_instance(const void* function) {
  return allow_shared(function, kSpreadShared - kSpreadReserved);
}

inline cudaError_t launch_spread_instance(const void* function, const SpreadArgs& args, cudaStream_t stream) {
  const auto slices = static_cast<unsigned>(args.plan.slices);
  const auto tiles = static_cast<unsigned>(ceil_div(args.conv.rows, kSpreadRows) * args.conv.column_tiles);
  LaunchShape shape{dim3(tiles * slices), dim3(kSpreadThreads)};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes());
  shape.overlap = true;
  shape.cluster = dim3(slices);
  return launch_kernel(function, shape, stream, args);
}

}  // namespace pipit::cuda
