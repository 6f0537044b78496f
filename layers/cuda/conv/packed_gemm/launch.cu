// The kernels of "packed_gemm" and their launch.
#include "layers/cuda/conv/packed_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

cudaError_t prepare_packed_gemm(const PackedGemmArgs& args, bool& overlap) {
  const auto* function = reinterpret_cast<const void*>(packed::kernel_of(args));
  const cudaError_t status = allow_shared(function, packed_most_shared_bytes(args));
  return status == cudaSuccess ? can_overlap(function, overlap) : status;
}

cudaError_t launch_packed_gemm(const PackedGemmArgs& args, bool overlap, cudaStream_t stream) {
  const PackedVariant variant{args.row_tiles, args.k_warps, args.out_tiles};
  const dim3 grid(static_cast<unsigned>(packed_parts(args.rows, variant.rows())),
                  static_cast<unsigned>(packed_parts(args.outputs, variant.outputs())));
  const auto shared = static_cast<std::size_t>(packed_shared_bytes(args));
  return launch_kernel(packed::kernel_of(args),
                       {grid, dim3(static_cast<unsigned>(variant.warps()) * 32), shared, overlap}, stream,
                       args);
}

}  // namespace pipit::internal::cuda
