// Kernels of the candidate "implicit_gemm" that average what they compute, in fp16 and INT8.
#include "layers/cuda/conv/conv_gemm_average.cuh"

#include <array>

#include "layers/cuda/conv/conv_gemm_instance.cuh"

namespace pipit::cuda {

namespace {

// One for each of kConvTiles.
template <typename Sum, template <typename> typename Epilogue>
std::array<ConvGemmInstance, 4> instances() {
  return {instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum>, false, Epilogue>()};
}

}  // namespace

const ConvGemmInstance* average_instance(const ConvTile& tile, bool int8) {
  static const std::array kHalf = instances<float, HalfAverage>();
  static const std::array kInt8 = instances<std::int32_t, Int8Average>();
  for (const ConvGemmInstance& i : int8 ? kInt8 : kHalf) {
    if (i.rows == tile.rows && i.columns == tile.columns) return &i;
  }
  return nullptr;
}

}  // namespace pipit::cuda
