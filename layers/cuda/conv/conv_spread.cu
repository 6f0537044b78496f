// The fp16 kernels of "spread_gemm".
#include <cuda_fp16.h>

#include "layers/cuda/conv/conv_spread_kernel.cuh"
#include "layers/cuda/conv/half_function.cuh"

namespace pipit::cuda {

namespace {

// From sums to y: bias, residual, clamp and a function in float, one rounding. Function: ConvGemmArgs::function is
// computed.
template <bool Function>
struct SpreadHalf {
  struct Columns {
    __align__(16) float bias[kSpreadColumns];
  };
  using Four = uint2;

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    const int c = static_cast<int>(threadIdx.x) * 4;
    if (c < kSpreadColumns)
      ptx::copy_async<16>(ptx::shared_address(columns.bias + c),
                          static_cast<const float*>(args.bias) + first_column + c, true);
  }
  static __device__ __forceinline__ Four fetch_residual(const ConvGemmArgs& args, bool finishes, int at) {
    if (!finishes || args.residual == nullptr || args.shape.out_c % 4 != 0) return {};
    return *reinterpret_cast<const Four*>(static_cast<const __half*>(args.residual) + at);
  }
  struct Constants {
    float bias[4];
  };
  /// Of four channels.
  static __device__ __forceinline__ Constants constants(const ConvGemmArgs&, const Columns& columns, int channel) {
    Constants c;
    *reinterpret_cast<float4*>(c.bias) = *reinterpret_cast<const float4*>(columns.bias + channel);
    return c;
  }
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, const Columns&, const Constants& constants,
                                                float (&v)[4], Four held, int at, int left) {
    const bool whole = args.shape.out_c % 4 == 0;
    const auto* residual = static_cast<const __half*>(args.residual);
    auto* y = static_cast<__half*>(args.y);
    __align__(8) __half r[4];
    *reinterpret_cast<Four*>(r) = held;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] += constants.bias[j];
      if (whole) {
        v[j] += __half2float(r[j]);
      } else if (residual != nullptr && j < left) {
        v[j] += __half2float(residual[at + j]);
      }
    }
    if constexpr (Function) {
      apply_clamped(args.function, args.low, args.high, v);
    } else {
#pragma unroll
      for (float& x : v) x = clamp_value(x, args.low, args.high);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = __float2half_rn(v[j]);
    if (whole) {
      *reinterpret_cast<Four*>(y + at) = *reinterpret_cast<const Four*>(r);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < left) y[at + j] = r[j];
      }
    }
  }
};

template <bool Function>
const void* instance() {
  return reinterpret_cast<const void*>(&spread_gemm<float, SpreadHalf<Function>>);
}

const void* function_of(const SpreadArgs& args) {
  return args.conv.function.gate == HalfGate::none ? instance<false>() : instance<true>();
}

}  // namespace

cudaError_t has_spread_gemm(bool& result) {
  // Compiled for anything else the kernel is empty.
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, instance<false>());
  result = status == cudaSuccess && attributes.sharedSizeBytes > 0;
  return status;
}

cudaError_t prepare_spread_gemm(const SpreadArgs& args) {
  return prepare_spread_instance(function_of(args));
}

cudaError_t launch_spread_gemm(const SpreadArgs& args, cudaStream_t stream) {
  return launch_spread_instance(function_of(args), args, stream);
}

}  // namespace pipit::cuda
