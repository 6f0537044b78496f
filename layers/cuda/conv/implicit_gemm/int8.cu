// Kernels of the candidate "implicit_gemm" in INT8 and their launches.
#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

// One thread per pixel and 16 channels.
__global__ void pad_bytes(const __grid_constant__ PadBytesArgs args, std::int64_t groups) {
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (index >= groups) return;
  const int per_pixel = args.padded / 16;
  const std::int64_t pixel = index / per_pixel;
  const int first = static_cast<int>(index - pixel * per_pixel) * 16;
  const std::int64_t image = pixel / args.pixels_per_image;
  const std::int8_t* from =
      args.x + image * args.image_stride + (pixel - image * args.pixels_per_image) * args.pixel_stride;
  __align__(16) std::int8_t values[16];
#pragma unroll
  for (int c = 0; c < 16; ++c)
    values[c] = first + c < args.channels ? from[(first + c) * args.channel_stride] : std::int8_t{0};
  *reinterpret_cast<uint4*>(args.y + index * 16) = *reinterpret_cast<const uint4*>(values);
}

// EndsUnstored: pixels of 8 bytes and a multiple of 16 (ConvShape::unstored), not of the largest tile.
template <bool EndsUnstored, template <typename> typename Epilogue>
const ConvGemmInstance* instance_of(const ConvTile& tile, bool listed) {
  using Sum = std::int32_t;
  // Rows, columns, warps along each, stages, vector, blocks per multiprocessor that registers must allow.
  using Large = ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>;
  using Square = ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum, EndsUnstored>;
  static const auto kInstances = [] {
    std::vector<ConvGemmInstance> result{
        instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum, EndsUnstored>, false, Epilogue>(),
        instance<Square, false, Epilogue>(),
        instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum, EndsUnstored>, false, Epilogue>(),
        instance<Square, true, Epilogue>()};
    if constexpr (!EndsUnstored) {
      result.push_back(instance<Large, false, Epilogue>());
      result.push_back(instance<Large, true, Epilogue>());
    }
    return result;
  }();
  return find_instance(kInstances, tile, 8, listed);
}

template <bool EndsUnstored>
const ConvGemmInstance* instance_of(const ConvTile& tile, const ConvGemmArgs& args) {
  static const auto kAverages = average_instances<std::int32_t, EndsUnstored, Int8Average>();
  if (args.average.images > 0) return find_instance(kAverages, tile);
  const bool listed = args.blocks != nullptr;
  if (args.stored != StoredType::i8) return instance_of<EndsUnstored, RealEpilogue>(tile, listed);
  return args.table != nullptr ? instance_of<EndsUnstored, LookedUpEpilogue>(tile, listed)
                               : instance_of<EndsUnstored, BytesEpilogue>(tile, listed);
}

const ConvGemmInstance* instance_of(const ConvTile& tile, const ConvGemmArgs& args) {
  return args.shape.unstored > 0 ? instance_of<true>(tile, args) : instance_of<false>(tile, args);
}

}  // namespace

cudaError_t prepare_qconv_gemm(const ConvTile& tile, const ConvGemmArgs& args) {
  return prepare_instance(instance_of(tile, args));
}

cudaError_t launch_qconv_gemm(const ConvTile& tile, const ConvGemmArgs& args, cudaStream_t stream) {
  return launch_instance(instance_of(tile, args), args, stream);
}

cudaError_t launch_pad_bytes(const PadBytesArgs& args, cudaStream_t stream) {
  const std::int64_t groups = args.pixels * (args.padded / 16);
  pad_bytes<<<static_cast<unsigned>(ceil_div(groups, 256)), 256, 0, stream>>>(args, groups);
  return cudaGetLastError();
}

}  // namespace pipit::internal::cuda
