// fp16 convolution of few channels.
#include <cuda_fp16.h>

#include "layers/cuda/conv/stem/kernel.cuh"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/cuda/epilogue/half_function.cuh"

namespace pipit::internal::cuda {

namespace {

// Function: StemArgs::function is computed.
template <bool Function>
struct HalfArithmetic {
  using Element = __half;
  using Sum = float;

  // Not a pixel times zero: it may be infinite. So what a unit has beyond the window's row, and units beyond the
  // window, are masked.
  struct alignas(16) Tap {
    int offset = 0;
    std::uint32_t mask[2] = {0, 0};

    Tap() = default;
    // elements: that the window's row still has.
    __device__ __forceinline__ Tap(int at, int elements, int group) : offset(at) {
      const int valid = group == 1 ? 4 : elements;
      mask[0] = valid >= 2 ? 0xFFFFFFFFU : 0x0000FFFFU;
      mask[1] = valid >= 4 ? 0xFFFFFFFFU : valid == 3 ? 0x0000FFFFU : 0U;
    }
    __device__ __forceinline__ uint2 of(uint2 unit) const {
      return make_uint2(unit.x & mask[0], unit.y & mask[1]);
    }
  };

  template <int Columns>
  struct Constants {
    float bias[Columns];
    __device__ __forceinline__ void load(const StemArgs& a) {
      for (int c = static_cast<int>(threadIdx.x); c < Columns; c += static_cast<int>(blockDim.x))
        bias[c] = static_cast<const float*>(a.bias)[blockIdx.y * Columns + c];
    }
  };

  template <int Columns>
  static __device__ __forceinline__ void start(const Constants<Columns>&, Sum (&sums)[Columns / 8][4]) {
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j) sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0;
  }

  template <int Columns>
  static __device__ __forceinline__ void finish(const StemArgs& a, const TileOrigin& tile,
                                                const Sum (&sums)[Columns / 8][4],
                                                const Constants<Columns>& constants) {
    write_rows<Columns>(
        a, tile, sums, [&](float sum, int column) { return sum + constants.bias[column]; },
        [&](auto& run, std::int64_t at, int channels, bool whole) { store(a, run, at, channels, whole); });
  }

 private:
  template <int Count>
  static __device__ __forceinline__ void store(const StemArgs& a, float (&run)[Count], std::int64_t at,
                                               int channels, bool whole) {
    using Halves = StemRun<__half, Count>;
    const auto* residual = static_cast<const __half*>(a.residual);
    if (residual != nullptr && whole) {
      const Halves held = *reinterpret_cast<const Halves*>(residual + at);
#pragma unroll
      for (int c = 0; c < Count; ++c) run[c] += __half2float(held.v[c]);
    } else if (residual != nullptr) {
#pragma unroll
      for (int c = 0; c < Count; ++c) {
        if (c < channels) run[c] += __half2float(residual[at + c]);
      }
    }
    Halves halves;
    if constexpr (Function) apply_clamped(a.function, a.low, a.high, run);
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      if constexpr (Function) {
        halves.v[c] = __float2half_rn(run[c]);
        continue;
      }
      float v = run[c];
      v = v < a.low ? a.low : v;  // comparisons, not fminf: a NaN stays one
      v = v > a.high ? a.high : v;
      halves.v[c] = __float2half_rn(v);
    }
    auto* y = static_cast<__half*>(a.y) + at;
    if (whole) {
      *reinterpret_cast<Halves*>(y) = halves;
    } else {
#pragma unroll
      for (int c = 0; c < Count; ++c) {
        if (c < channels) y[c] = halves.v[c];
      }
    }
  }
};

StemKernel kernel_of(const StemArgs& args) {
  return args.function.gate == HalfGate::none ? stem_kernel<HalfArithmetic<false>, 2>(args)
                                              : stem_kernel<HalfArithmetic<true>, 2>(args);
}

}  // namespace

cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks, bool& overlap) {
  return prepare_stem_kernel(kernel_of(args), args, resident_blocks, overlap);
}

cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream) {
  return launch_stem_kernel(kernel_of(args), args, resident_blocks, stream);
}

}  // namespace pipit::internal::cuda
