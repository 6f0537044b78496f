// The launch of an instance of "spread_gemm", apart from the kernel, which is also compiled for a CPU.
#include "layers/cuda/conv/spread_gemm/epilogue.cuh"
#include "layers/cuda/conv/spread_gemm/kernel.cuh"
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

// The fp16 kernels of "spread_gemm".

namespace {

template <bool Function>
const void* instance() {
  return reinterpret_cast<const void*>(&spread_gemm<float, SpreadHalf<Function>>);
}

const void* function_of(const SpreadArgs& args) {
  return args.conv.function.gate == HalfGate::none ? instance<false>() : instance<true>();
}

}  // namespace

cudaError_t prepare_spread_gemm(const SpreadArgs& args) {
  return prepare_spread_instance(function_of(args));
}

cudaError_t launch_spread_gemm(const SpreadArgs& args, cudaStream_t stream) {
  return launch_spread_instance(function_of(args), args, stream);
}

// The INT8 kernels of "spread_gemm".

namespace {

template <bool LooksUp>
const void* instance() {
  return reinterpret_cast<const void*>(&spread_gemm<std::int32_t, SpreadInt8<LooksUp>>);
}

const void* function_of(const SpreadArgs& args) {
  return args.conv.table != nullptr ? instance<true>() : instance<false>();
}

}  // namespace

cudaError_t prepare_qspread_gemm(const SpreadArgs& args) {
  return prepare_spread_instance(function_of(args));
}

cudaError_t launch_qspread_gemm(const SpreadArgs& args, cudaStream_t stream) {
  return launch_spread_instance(function_of(args), args, stream);
}

}  // namespace pipit::cuda
