// INT8 convolution of few channels; f32 images are quantized while they are copied to shared memory.
#include "layers/cuda/conv/stem/kernel.cuh"
#include "layers/cuda/conv/stem/plan.h"

namespace pipit::internal::cuda {

namespace {

struct Int8Arithmetic {
  using Element = std::int8_t;
  using Sum = int;

  struct Tap {
    int offset = 0;  // beyond the window any, as the weights there are 0

    Tap() = default;
    __device__ __forceinline__ Tap(int at, int, int) : offset(at) {}
    __device__ __forceinline__ uint2 of(uint2 unit) const { return unit; }
  };

  // Sums begin with the bias; small ones with kMagicBits in addition, so that their bits are a float (int8_math.cuh).
  template <int Columns>
  struct Constants {
    alignas(8) int first[Columns];
    float multiplier[Columns];
    alignas(4) std::uint8_t table[256];
    __device__ __forceinline__ void load(const StemArgs& a) {
      const int magic = a.small ? kMagicBits : 0;
      for (int c = static_cast<int>(threadIdx.x); c < Columns; c += static_cast<int>(blockDim.x)) {
        first[c] = static_cast<const int*>(a.bias)[blockIdx.y * Columns + c] + magic;
        multiplier[c] = a.multipliers[blockIdx.y * Columns + c];
      }
      if (a.table == nullptr) return;
      for (int w = static_cast<int>(threadIdx.x); w < 64; w += static_cast<int>(blockDim.x))
        reinterpret_cast<std::uint32_t*>(table)[w] = reinterpret_cast<const std::uint32_t*>(a.table)[w];
    }
  };

  template <int Columns>
  static __device__ __forceinline__ void start(const Constants<Columns>& constants,
                                               Sum (&sums)[Columns / 8][4]) {
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j) {
      const int2 first = *reinterpret_cast<const int2*>(constants.first + j * 8 + threadIdx.x % 4 * 2);
      sums[j][0] = sums[j][2] = first.x;
      sums[j][1] = sums[j][3] = first.y;
    }
  }

  // As layers/ops/quantization.h specifies it, bit for bit: every operation is rounded to f32, none is contracted.
  template <int Columns>
  static __device__ __forceinline__ void finish(const StemArgs& a, const TileOrigin& tile,
                                                const Sum (&sums)[Columns / 8][4],
                                                const Constants<Columns>& constants) {
    const auto write = [&](auto small) {
      constexpr bool kSmall = decltype(small)::value;
      write_rows<Columns>(
          a, tile, sums,
          [&](int sum, int column) {
            return __fmul_rn(kSmall ? small_to_float(sum) : __int2float_rn(sum),
                             constants.multiplier[column]);
          },
          [&](auto& run, std::int64_t at, int channels, bool whole) {
            store<kSmall>(a, constants.table, run, at, channels, whole);
          });
    };
    if (a.small) {
      write(std::true_type());
    } else {
      write(std::false_type());
    }
  }

 private:
  template <bool Small, int Count>
  static __device__ __forceinline__ void store(const StemArgs& a, const std::uint8_t* table,
                                               float (&run)[Count], std::int64_t at, int channels,
                                               bool whole) {
    const auto* residual = static_cast<const std::int8_t*>(a.residual);
    if (residual != nullptr) {
      StemRun<std::int8_t, Count> held{};
      if (whole) {
        held = *reinterpret_cast<const StemRun<std::int8_t, Count>*>(residual + at);
      } else {
#pragma unroll
        for (int c = 0; c < Count; ++c) {
          if (c < channels) held.v[c] = residual[at + c];
        }
      }
#pragma unroll
      for (int c = 0; c < Count; ++c)
        run[c] = __fadd_rn(run[c], __fmul_rn(static_cast<float>(held.v[c]), a.residual_scale));
    }
    if (a.stored == StoredType::i8) {
      StemRun<std::uint8_t, Count> bytes;
      if constexpr (Small && Count % 4 == 0) {
#pragma unroll
        for (int c = 0; c < Count; c += 4) {
          const float four[4] = {run[c], run[c + 1], run[c + 2], run[c + 3]};
          *reinterpret_cast<std::uint32_t*>(bytes.v + c) = requantize_four<false>(four, a.whole_bounds);
        }
      } else {
#pragma unroll
        for (int c = 0; c < Count; ++c)
          bytes.v[c] = static_cast<std::uint8_t>(requantize_bits(run[c], a.low, a.high));
      }
      if (a.table != nullptr) {
#pragma unroll
        for (int c = 0; c < Count; ++c) bytes.v[c] = table[bytes.v[c]];
      }
      return write(static_cast<std::uint8_t*>(a.y) + at, bytes, channels, whole);
    }
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      run[c] = run[c] < a.low ? a.low : run[c];
      run[c] = run[c] > a.high ? a.high : run[c];
    }
    if (a.stored == StoredType::f16) {
      StemRun<__half, Count> halves;
#pragma unroll
      for (int c = 0; c < Count; ++c) halves.v[c] = __float2half_rn(run[c]);
      return write(static_cast<__half*>(a.y) + at, halves, channels, whole);
    }
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      if (c < channels) static_cast<float*>(a.y)[at + c] = run[c];
    }
  }

  template <typename T, int Count>
  static __device__ __forceinline__ void write(T* y, const StemRun<T, Count>& run, int channels, bool whole) {
    if (whole) {
      *reinterpret_cast<StemRun<T, Count>*>(y) = run;
    } else {
#pragma unroll
      for (int c = 0; c < Count; ++c) {
        if (c < channels) y[c] = run.v[c];
      }
    }
  }
};

StemKernel kernel_of(const StemArgs& args) {
  return args.units.unit_bytes == 4 ? stem_kernel<Int8Arithmetic, 1>(args)
                                    : stem_kernel<Int8Arithmetic, 2>(args);
}

}  // namespace

cudaError_t prepare_qstem(const StemArgs& args, int& resident_blocks, bool& overlap) {
  return prepare_stem_kernel(kernel_of(args), args, resident_blocks, overlap);
}

cudaError_t launch_qstem(const StemArgs& args, int resident_blocks, cudaStream_t stream) {
  return launch_stem_kernel(kernel_of(args), args, resident_blocks, stream);
}

}  // namespace pipit::internal::cuda
