// Convolutions of few channels in fp16, bf16 and INT8, where f32 images are quantized while they are copied to shared
// memory, and their launch.
#include "layers/cuda/conv/stem/kernel.cuh"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

namespace {

// Function: StemArgs::function is computed.
template <typename SumType, bool Function>
struct HalfArithmetic {
  using Sum = SumType;
  using Element = NarrowOf<Sum>;

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
    using Halves = StemRun<Element, Count>;
    const auto* residual = static_cast<const Element*>(a.residual);
    if (residual != nullptr && whole) {
      const Halves held = *reinterpret_cast<const Halves*>(residual + at);
#pragma unroll
      for (int c = 0; c < Count; ++c) run[c] += load(held.v[c]);
    } else if (residual != nullptr) {
#pragma unroll
      for (int c = 0; c < Count; ++c) {
        if (c < channels) run[c] += load(residual[at + c]);
      }
    }
    Halves halves;
    if constexpr (Function) apply_clamped(a.function, a.low, a.high, run);
#pragma unroll
    for (int c = 0; c < Count; ++c) {
      if constexpr (Function) {
        halves.v[c] = cuda::store<Element>(run[c]);
        continue;
      }
      float v = run[c];
      v = v < a.low ? a.low : v;  // comparisons, not fminf: a NaN stays one
      v = v > a.high ? a.high : v;
      halves.v[c] = cuda::store<Element>(v);
    }
    auto* y = static_cast<Element*>(a.y) + at;
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

struct Int8Arithmetic {
  using Element = std::int8_t;
  using Sum = int;

  struct Tap {
    int offset = 0;  // beyond the window any, as the weights there are 0

    Tap() = default;
    __device__ __forceinline__ Tap(int at, int, int) : offset(at) {}
    __device__ __forceinline__ uint2 of(uint2 unit) const { return unit; }
  };

  // Sums begin with the bias; small ones with kMagicBits in addition, so that their bits are a float (stores.cuh).
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
      if (a.table != nullptr) copy_table(table, a.table);
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

  template <int Columns>
  static __device__ __forceinline__ void finish(const StemArgs& a, const TileOrigin& tile,
                                                const Sum (&sums)[Columns / 8][4],
                                                const Constants<Columns>& constants) {
    const auto write = [&](auto small) {
      constexpr bool kSmall = decltype(small)::value;
      write_rows<Columns>(
          a, tile, sums,
          [&](int sum, int column) { return scaled(sum, constants.multiplier[column], kSmall); },
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
        run[c] = with_residual(run[c], static_cast<float>(held.v[c]), a.residual_scale);
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
          bytes.v[c] = static_cast<std::uint8_t>(byte_of(run[c], a.low, a.high));
      }
      if (a.table != nullptr) {
#pragma unroll
        for (int c = 0; c < Count; ++c) bytes.v[c] = table[bytes.v[c]];
      }
      return write(static_cast<std::uint8_t*>(a.y) + at, bytes, channels, whole);
    }
#pragma unroll
    for (int c = 0; c < Count; ++c) run[c] = clamp_value(run[c], a.low, a.high);
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
  if (args.shape.int8)
    return args.units.unit_bytes == 4 ? stem_kernel<Int8Arithmetic, 1>(args)
                                      : stem_kernel<Int8Arithmetic, 2>(args);
  const auto of_sums = [&]<typename Sum>(Sum) {
    return args.function.gate == HalfGate::none ? stem_kernel<HalfArithmetic<Sum, false>, 2>(args)
                                                : stem_kernel<HalfArithmetic<Sum, true>, 2>(args);
  };
  return args.shape.bf16 ? of_sums(BfloatSum()) : of_sums(float());
}

}  // namespace

cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks, bool& overlap) {
  const StemKernel kernel = kernel_of(args);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaError_t status = allow_shared(function, static_cast<int>(kStemMaxShared));
  if (status == cudaSuccess)
    status = resident_blocks_of(function, 32 * args.tile.rows, args.shared_bytes, resident_blocks);
  return status == cudaSuccess ? can_overlap(function, overlap) : status;
}

cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream) {
  const int columns = static_cast<int>(ceil_div(args.shape.out_c, args.tile.width));
  const int blocks = std::min(args.tiles, std::max(resident_blocks / columns, 1));
  return launch_kernel(kernel_of(args),
                       {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(columns)),
                        dim3(static_cast<unsigned>(32 * args.tile.rows)), args.shared_bytes, args.overlap},
                       stream, args);
}

}  // namespace pipit::internal::cuda
