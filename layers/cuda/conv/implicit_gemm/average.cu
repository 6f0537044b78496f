// Kernels of the candidate "implicit_gemm" that average what they compute, in fp16 and INT8.
#include <vector>

#include "layers/cuda/conv/implicit_gemm/average.cuh"
#include "layers/cuda/conv/implicit_gemm/instance.cuh"

namespace pipit::internal::cuda {

namespace {

// EndsUnstored as in ConvGemmTraits.
template <typename Sum, bool EndsUnstored, template <typename> typename Epilogue>
std::vector<ConvGemmInstance> instances() {
  std::vector<ConvGemmInstance> result{
      instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum, EndsUnstored>, false, Epilogue>(),
      instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum, EndsUnstored>, false, Epilogue>(),
      instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum, EndsUnstored>, false, Epilogue>()};
  if constexpr (!EndsUnstored)
    result.push_back(instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>, false, Epilogue>());
  return result;
}

}  // namespace

const ConvGemmInstance* average_instance(const ConvTile& tile, bool int8, bool unstored) {
  static const auto kHalf = instances<float, false, HalfAverage>();
  static const auto kInt8 = instances<std::int32_t, false, Int8Average>();
  static const auto kUnstored = instances<std::int32_t, true, Int8Average>();
  for (const ConvGemmInstance& i : unstored ? kUnstored : int8 ? kInt8 : kHalf) {
    if (i.rows == tile.rows && i.columns == tile.columns) return &i;
  }
  return nullptr;
}

}  // namespace pipit::internal::cuda
