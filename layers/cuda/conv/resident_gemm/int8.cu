// The INT8 kernels of "resident_gemm".
#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/resident_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

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
  return args.conv.table != nullptr ? resident_function<LookedUp>(args.plan)
                                    : resident_function<Bytes>(args.plan);
}

}  // namespace

cudaError_t prepare_qresident_gemm(const ResidentArgs& args) {
  return prepare_resident_instance(function_of(args));
}

cudaError_t launch_qresident_gemm(const ResidentArgs& args, cudaStream_t stream) {
  return launch_resident_instance(function_of(args), args, stream);
}

}  // namespace pipit::internal::cuda
