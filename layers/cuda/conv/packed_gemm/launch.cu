// The kernels of "packed_gemm" and their launch.
#include "layers/cuda/conv/packed_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using Kernel = void (*)(PackedGemmArgs);

template <int Bits, int Scales>
Kernel kernel_of_rows(int row_tiles) {
  switch (row_tiles) {
    case 1:
      return packed_gemm<Bits, Scales, 1>;
    case 2:
      return packed_gemm<Bits, Scales, 2>;
    case 4:
      return packed_gemm<Bits, Scales, 4>;
    default:
      return packed_gemm<Bits, Scales, 8>;
  }
}

Kernel kernel_of(const PackedGemmArgs& args) {
  if (args.bits == 8) return kernel_of_rows<8, 0>(args.row_tiles);
  switch (args.scales_of_span) {
    case 1:
      return kernel_of_rows<4, 1>(args.row_tiles);
    case 2:
      return kernel_of_rows<4, 2>(args.row_tiles);
    default:
      return kernel_of_rows<4, 4>(args.row_tiles);
  }
}

}  // namespace

cudaError_t prepare_packed_gemm(const PackedGemmArgs& args, bool& overlap) {
  return can_overlap(reinterpret_cast<const void*>(kernel_of(args)), overlap);
}

cudaError_t launch_packed_gemm(const PackedGemmArgs& args, bool overlap, cudaStream_t stream) {
  const PackedVariant variant{args.row_tiles, args.k_warps};
  const dim3 grid(static_cast<unsigned>(packed_parts(args.rows, variant.rows())),
                  static_cast<unsigned>(packed_parts(args.outputs, variant.outputs())));
  return launch_kernel(kernel_of(args), {grid, dim3(kPackedWarps * 32), 0, overlap}, stream, args);
}

}  // namespace pipit::internal::cuda
