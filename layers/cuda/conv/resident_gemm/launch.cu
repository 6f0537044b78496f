// The kernels of "resident_gemm" in fp16, bf16 and INT8, and their launch.
#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/resident_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

// Sums begin with the bias. Packed weights are in the order of packed_channel, so that a lane has eight neighbouring
// channels of every 32 and writes them at once. Function: ConvGemmArgs::function is computed.
template <int ColumnCount, typename Sum, bool Function>
struct ResidentHalf {
  using Traits = ResidentTraits<ColumnCount, Sum>;
  using Element = NarrowOf<Sum>;
  using Two = TwoOf<Element>;
  using F = ConvGemmFragments<Traits>;
  struct Columns {
    alignas(8) float bias[ColumnCount];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = static_cast<int>(threadIdx.x); c < ColumnCount; c += static_cast<int>(blockDim.x))
      columns.bias[c] = static_cast<const float*>(args.bias)[first_column + c];
  }
  /// What a lane reads of the residual before the products begin.
  struct Held {
    uint4 runs[2][F::kN / 4];
  };

  static __device__ __forceinline__ void start(const ConvGemmArgs& args, F& fragments, const Columns& columns,
                                               Held& held, int first_row, int first_column) {
    if (args.residual != nullptr) {
      for_each_run(args, first_row, first_column, [&](int h, int run, std::int64_t at) {
        held.runs[h][run] = *reinterpret_cast<const uint4*>(static_cast<const Element*>(args.residual) + at);
      });
    }
#pragma unroll
    for (int j = 0; j < F::kN; ++j) {
      const float2 bias =
          *reinterpret_cast<const float2*>(columns.bias + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2);
      fragments.sums[0][j][0] = fragments.sums[0][j][2] = bias.x;
      fragments.sums[0][j][1] = fragments.sums[0][j][3] = bias.y;
    }
  }
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    const Columns&, const Held& held, int first_row,
                                                    int first_column) {
    args.residual != nullptr ? write<true>(args, fragments, held, first_row, first_column)
                             : write<false>(args, fragments, held, first_row, first_column);
  }

 private:
  // use(half of the rows, run, where it lies in y) for the runs of eight channels that a lane has of the tile.
  template <typename Use>
  static __device__ __forceinline__ void for_each_run(const ConvGemmArgs& args, int first_row,
                                                      int first_column, Use use) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int channel = first_column + lane % 4 * 8;
    const int row = first_row + F::first_row(static_cast<int>(threadIdx.x) / 32) + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + h * 8 >= args.rows) continue;
      const std::int64_t at = output_offset(args, row + h * 8, channel);
#pragma unroll
      for (int run = 0; run < F::kN / 4; ++run) {
        if (channel + run * 32 < args.shape.out_c) use(h, run, at + run * 32);
      }
    }
  }
  template <bool Residual>
  static __device__ __forceinline__ void write(const ConvGemmArgs& args, const F& fragments, const Held& held,
                                               int first_row, int first_column) {
    const Two low = to_two<Element>(args.low, args.low), high = to_two<Element>(args.high, args.high);
    for_each_run(args, first_row, first_column, [&](int h, int run, std::int64_t at) {
      __align__(16) Two pairs[4];
      float values[8];  // of the function
      if constexpr (Residual) *reinterpret_cast<uint4*>(pairs) = held.runs[h][run];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const Sum(&sums)[4] = fragments.sums[0][run * 4 + u];
        float2 v = make_float2(sums[h * 2], sums[h * 2 + 1]);
        if constexpr (Residual) {
          const float2 r = to_floats(pairs[u]);
          v.x += r.x, v.y += r.y;
        }
        if constexpr (Function) {
          values[u * 2] = v.x, values[u * 2 + 1] = v.y;
        } else {
          // Rounding does not change the order, so bounds may come after it.
          pairs[u] = __hmin2_nan(__hmax2_nan(to_two<Element>(v.x, v.y), low), high);
        }
      }
      if constexpr (Function) {
        apply_clamped(args.function, args.low, args.high, values);
#pragma unroll
        for (int u = 0; u < 4; ++u) pairs[u] = to_two<Element>(values[u * 2], values[u * 2 + 1]);
      }
      *reinterpret_cast<uint4*>(static_cast<Element*>(args.y) + at) = *reinterpret_cast<const uint4*>(pairs);
    });
  }
};

template <int ColumnCount>
using PlainHalf = ResidentHalf<ColumnCount, float, false>;
template <int ColumnCount>
using HalfWithFunction = ResidentHalf<ColumnCount, float, true>;
template <int ColumnCount>
using PlainBfloat = ResidentHalf<ColumnCount, BfloatSum, false>;
template <int ColumnCount>
using BfloatWithFunction = ResidentHalf<ColumnCount, BfloatSum, true>;

// Int8Epilogue, with biases in shared memory: they are read for every tile.
template <int ColumnCount, Int8Result Result>
struct ResidentInt8 {
  using Traits = ResidentTraits<ColumnCount, std::int32_t>;
  using F = ConvGemmFragments<Traits>;
  using Int8 = Int8Epilogue<Traits, Result>;
  struct Columns {
    typename Int8::Columns int8;
    alignas(8) int bias[ColumnCount];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    Int8::load(args, first_column, columns.int8);
    for (int c = static_cast<int>(threadIdx.x); c < ColumnCount; c += static_cast<int>(blockDim.x))
      columns.bias[c] = static_cast<const int*>(args.bias)[first_column + c] + (args.small ? kMagicBits : 0);
  }
  struct Held {};

  static __device__ __forceinline__ void start(const ConvGemmArgs&, F& fragments, const Columns& columns,
                                               Held&, int, int) {
#pragma unroll
    for (int j = 0; j < F::kN; ++j) {
      const int2 bias =
          *reinterpret_cast<const int2*>(columns.bias + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2);
      fragments.sums[0][j][0] = fragments.sums[0][j][2] = bias.x;
      fragments.sums[0][j][1] = fragments.sums[0][j][3] = bias.y;
    }
  }
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    const Columns& columns, const Held&, int first_row,
                                                    int first_column) {
    Int8::write_tile(args, fragments, nullptr, columns.int8, false, first_row, first_column);
  }
};

template <int ColumnCount>
using Bytes = ResidentInt8<ColumnCount, Int8Result::bytes>;
template <int ColumnCount>
using LookedUp = ResidentInt8<ColumnCount, Int8Result::looked_up>;

const void* function_of(const ResidentArgs& args) {
  if (args.conv.shape.int8)
    return args.conv.table != nullptr ? resident_function<LookedUp>(args.plan)
                                      : resident_function<Bytes>(args.plan);
  const bool plain = args.conv.function.gate == HalfGate::none;
  if (args.conv.shape.bf16)
    return plain ? resident_function<PlainBfloat>(args.plan)
                 : resident_function<BfloatWithFunction>(args.plan);
  return plain ? resident_function<PlainHalf>(args.plan) : resident_function<HalfWithFunction>(args.plan);
}

}  // namespace

cudaError_t prepare_resident_gemm(const ResidentArgs& args) {
  return allow_shared(function_of(args), kResidentShared - kResidentReserved);
}

cudaError_t launch_resident_gemm(const ResidentArgs& args, cudaStream_t stream) {
  LaunchShape shape{dim3(static_cast<unsigned>(args.conv.column_tiles), static_cast<unsigned>(args.workers)),
                    dim3(static_cast<unsigned>(args.plan.groups * 128 + 128))};
  shape.shared_bytes = static_cast<std::size_t>(args.plan.shared_bytes);
  shape.overlap = args.conv.overlap;
  return launch_kernel(function_of(args), shape, stream, args);
}

}  // namespace pipit::internal::cuda
