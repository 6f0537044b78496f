// Kernels of the candidate "implicit_gemm" in INT8 with scales that are found at run time, and their launches.
#include "layers/cuda/conv/implicit_gemm/dynamic_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

const ConvGemmInstance* instance_of(const ConvTile& tile) {
  using Sum = std::int32_t;
  // As in INT8 with a plan.
  static const std::vector<ConvGemmInstance> kInstances{
      instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>, false, DynamicEpilogue>(),
      instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum>, false, DynamicEpilogue>(),
      instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum>, false, DynamicEpilogue>(),
      instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum>, false, DynamicEpilogue>()};
  return find_instance(kInstances, tile);
}

}  // namespace

cudaError_t prepare_dynamic_gemm(const ConvTile& tile) {
  return prepare_instance(instance_of(tile));
}

cudaError_t launch_dynamic_gemm(const ConvTile& tile, const ConvGemmArgs& args, cudaStream_t stream) {
  return launch_instance(instance_of(tile), args, stream);
}

}  // namespace pipit::internal::cuda
