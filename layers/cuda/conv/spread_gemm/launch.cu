// The kernels of "spread_gemm" that are compiled, and their launch.
#include "layers/cuda/conv/spread_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

namespace {

const void* function_of(const SpreadArgs& args) {
  const auto of = [](auto kernel) { return reinterpret_cast<const void*>(kernel); };
  if (args.conv.shape.int8) {
    return args.conv.table != nullptr ? of(&spread_gemm<std::int32_t, SpreadInt8<true>>)
                                      : of(&spread_gemm<std::int32_t, SpreadInt8<false>>);
  }
  const auto of_sums = [&]<typename Sum>(Sum) {
    return args.conv.function.gate != HalfGate::none ? of(&spread_gemm<Sum, SpreadHalf<Sum, true>>)
                                                     : of(&spread_gemm<Sum, SpreadHalf<Sum, false>>);
  };
  return args.conv.shape.bf16 ? of_sums(BfloatSum()) : of_sums(float());
}

}  // namespace

cudaError_t prepare_spread_gemm(const SpreadArgs& args) {
  return allow_shared(function_of(args), kSpreadShared - kSpreadReserved);
}

cudaError_t launch_spread_gemm(const SpreadArgs& args, cudaStream_t stream) {
  const auto slices = static_cast<unsigned>(args.plan.slices);
  const auto tiles = static_cast<unsigned>(ceil_div(args.conv.rows, kSpreadRows) * args.conv.column_tiles);
  LaunchShape shape{dim3(tiles * slices), dim3(kSpreadThreads)};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes());
  shape.overlap = true;
  shape.cluster = dim3(slices);
  return launch_kernel(function_of(args), shape, stream, args);
}

}  // namespace pipit::internal::cuda
