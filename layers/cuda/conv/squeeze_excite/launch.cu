// Kernels of the candidate "squeeze_excite" and their launch.
#include "layers/cuda/conv/squeeze_excite/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(const SqueezeShape& shape) {
  if (shape.element_bytes == 1) return reinterpret_cast<const void*>(&run_squeeze_excite<SqueezeInt8>);
  return shape.bf16 ? reinterpret_cast<const void*>(&run_squeeze_excite<SqueezeHalf<__nv_bfloat16>>)
                    : reinterpret_cast<const void*>(&run_squeeze_excite<SqueezeHalf<__half>>);
}

}  // namespace

cudaError_t prepare_squeeze_excite(const SqueezeShape& shape) {
  return allow_shared(function_of(shape), kSqueezeShared);
}

cudaError_t launch_squeeze_excite(const SqueezeArgs& args, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.plan.blocks);
  LaunchShape shape{dim3(static_cast<unsigned>(args.plan.shape.images) * blocks), dim3(kSqueezeThreads)};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes);
  shape.overlap = true;
  shape.cluster = dim3(blocks);
  return launch_kernel(function_of(args.plan.shape), shape, stream, args);
}

}  // namespace pipit::internal::cuda
