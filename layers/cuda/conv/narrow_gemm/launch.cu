// The kernels of "narrow_gemm" and their launch.
#include <algorithm>

#include "layers/cuda/conv/narrow_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

using Kernel = void (*)(NarrowArgs);

template <int Steps>
Kernel kernel_of(const NarrowArgs& args) {
  constexpr NarrowFrom kFrom = NarrowFrom::bytes;
  if (args.adds) return narrow_gemm<Steps, kFrom, NarrowEnd::added>;
  return args.table != nullptr ? narrow_gemm<Steps, kFrom, NarrowEnd::looked_up>
                               : narrow_gemm<Steps, kFrom, NarrowEnd::bytes>;
}

Kernel kernel_of(const NarrowArgs& args) {
  if (args.from == NarrowFrom::window)
    return args.table != nullptr ? narrow_gemm<2, NarrowFrom::window, NarrowEnd::looked_up>
                                 : narrow_gemm<2, NarrowFrom::window, NarrowEnd::bytes>;
  switch (args.shape.steps()) {
    case 1:
      return kernel_of<1>(args);
    case 2:
      return kernel_of<2>(args);
    case 3:
      return kernel_of<3>(args);
    default:
      return kernel_of<6>(args);
  }
}

}  // namespace

cudaError_t prepare_narrow_gemm(const NarrowArgs& args, int& blocks, bool& overlap) {
  const auto* function = reinterpret_cast<const void*>(kernel_of(args));
  const cudaError_t status =
      resident_blocks_of(function, kNarrowThreads, static_cast<std::size_t>(args.packed_bytes), blocks);
  return status == cudaSuccess ? can_overlap(function, overlap) : status;
}

cudaError_t launch_narrow_gemm(const NarrowArgs& args, int blocks, bool overlap, cudaStream_t stream) {
  constexpr int kWarps = kNarrowThreads / 32;
  const int positions = kWarps * 16 * (args.shape.steps() == 1 ? 2 : 1);
  const int needed = static_cast<int>(ceil_div(args.positions, positions));
  return launch_kernel(kernel_of(args),
                       {dim3(static_cast<unsigned>(std::min(blocks, needed))), dim3(kNarrowThreads),
                        static_cast<std::size_t>(args.packed_bytes), overlap},
                       stream, args);
}

}  // namespace pipit::internal::cuda
