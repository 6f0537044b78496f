// The launch of what "unpacked_gemm" runs before the library's product.
#include "layers/cuda/conv/unpacked_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

cudaError_t prepare_unpack(const UnpackArgs& args, bool& overlap) {
  return can_overlap(reinterpret_cast<const void*>(unpack::kernel_of(args)), overlap);
}

cudaError_t launch_unpack(const UnpackArgs& args, bool overlap, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(args.weight_blocks + args.copy_blocks);
  return launch_kernel(unpack::kernel_of(args), {dim3(blocks), dim3(kUnpackThreads), 0, overlap}, stream,
                       args);
}

}  // namespace pipit::internal::cuda
