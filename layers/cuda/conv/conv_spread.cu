// The fp16 kernels of "spread_gemm".
#include "layers/cuda/conv/conv_spread_epilogue.cuh"
#include "layers/cuda/conv/conv_spread_instance.cuh"

namespace pipit::cuda {

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

}  // namespace pipit::cuda
