// Kernels of the candidate "implicit_gemm" in INT8 for pixels of 8 bytes and a multiple of 16 (ConvShape::unstored).
#include <array>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/instance.cuh"

namespace pipit::internal::cuda {

namespace {

template <template <typename> typename Epilogue>
const ConvGemmInstance* find_instance(const ConvTile& tile, bool listed) {
  using Sum = std::int32_t;
  using Square = ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum, true>;
  static const std::array kInstances{
      instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum, true>, false, Epilogue>(),
      instance<Square, false, Epilogue>(),
      instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum, true>, false, Epilogue>(),
      instance<Square, true, Epilogue>(),
  };
  for (const ConvGemmInstance& i : kInstances) {
    if (i.rows == tile.rows && i.columns == tile.columns && i.listed == listed) return &i;
  }
  return nullptr;
}

}  // namespace

const ConvGemmInstance* unstored_instance(const ConvTile& tile, const ConvGemmArgs& args) {
  const bool listed = args.blocks != nullptr;
  if (args.stored != ConvStored::i8) return find_instance<RealEpilogue>(tile, listed);
  return args.table != nullptr ? find_instance<LookedUpEpilogue>(tile, listed)
                               : find_instance<BytesEpilogue>(tile, listed);
}

}  // namespace pipit::internal::cuda
