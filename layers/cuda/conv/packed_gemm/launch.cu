// The kernels of "packed_gemm" and their launch.
#include "layers/cuda/conv/packed_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

cudaError_t prepare_packed_gemm(const PackedGemmArgs& args, bool& overlap) {
  return can_overlap(reinterpret_cast<const void*>(packed::kernel_of(args)), overlap);
}

cudaError_t launch_packed_gemm(const PackedGemmArgs& args, bool overlap, cudaStream_t stream) {
  const PackedVariant variant{args.row_tiles, args.k_warps};
  const dim3 grid(static_cast<unsigned>(packed_parts(args.rows, variant.rows())),
                  static_cast<unsigned>(packed_parts(args.outputs, variant.outputs())));
  return launch_kernel(packed::kernel_of(args), {grid, dim3(kPackedWarps * 32), 0, overlap}, stream, args);
}

}  // namespace pipit::internal::cuda
