// The INT8 kernels of "spread_gemm".
#include "layers/cuda/conv/conv_spread_epilogue_int8.cuh"
#include "layers/cuda/conv/conv_spread_instance.cuh"

namespace pipit::cuda {

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
