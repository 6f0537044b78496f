// Kernels of the candidate "implicit_gemm" in fp16 and bf16 and their launches.
#include <array>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

// One thread per pixel and Vector channels.
template <typename Element, int Vector>
__global__ void pad_channels(const __grid_constant__ PadChannelsArgs args, std::int64_t vectors) {
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (index >= vectors) return;
  const int per_pixel = args.padded / Vector;
  const std::int64_t pixel = index / per_pixel;
  const int first = static_cast<int>(index - pixel * per_pixel) * Vector;
  const std::int64_t image = pixel / args.pixels_per_image;
  const std::int64_t from =
      image * args.image_stride + (pixel - image * args.pixels_per_image) * args.pixel_stride;
  const auto read = [&](std::int64_t at) {
    return args.x_f32 ? store<Element>(static_cast<const float*>(args.x)[at])
                      : static_cast<const Element*>(args.x)[at];
  };
  __align__(16) Element values[Vector];
#pragma unroll
  for (int c = 0; c < Vector; ++c) {
    values[c] = first + c < args.channels ? read(from + (first + c) * args.channel_stride) : Element(0.0F);
  }
  std::uint16_t* to = args.y + index * Vector;
  if constexpr (Vector == 8) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(values);
  } else {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(values);
  }
}

template <typename T>
using PlainEpilogue = HalfEpilogue<T, false>;
template <typename T>
using FunctionEpilogue = HalfEpilogue<T, true>;

// Rows, columns, warps along each, stages, vector, blocks per multiprocessor that registers must allow.
template <typename Sum>
using Large = ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>;
template <typename Sum>
using Square = ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum>;

// Without lists.
template <typename Sum, template <typename> typename Epilogue>
std::array<ConvGemmInstance, 5> instances() {
  return {instance<Large<Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum>, false, Epilogue>(),
          instance<Square<Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum>, false, Epilogue>(),
          instance<ConvGemmTraits<128, 64, 2, 2, 3, 4, 3, Sum>, false, Epilogue>()};
}

template <typename Sum>
const ConvGemmInstance* instance_of(const ConvTile& tile, int vector, bool listed, bool function) {
  static const std::array kPlain = instances<Sum, PlainEpilogue>();
  static const std::array kFunction = instances<Sum, FunctionEpilogue>();
  static const std::array kListed{instance<Large<Sum>, true, PlainEpilogue>(),
                                  instance<Square<Sum>, true, PlainEpilogue>()};
  if (listed) return function ? nullptr : find_instance(kListed, tile, vector, true);
  return find_instance(function ? kFunction : kPlain, tile, vector);
}

template <typename Sum>
const ConvGemmInstance* instance_of(const ConvTile& tile, int vector, const ConvGemmArgs& args) {
  static const auto kAverages = average_instances<Sum, false, HalfAverage>();
  if (args.average.images > 0) return find_instance(kAverages, tile, vector);
  return instance_of<Sum>(tile, vector, args.blocks != nullptr, args.function.gate != HalfGate::none);
}

const ConvGemmInstance* compiled(const ConvTile& tile, int vector, const ConvGemmArgs& args) {
  return args.shape.bf16 ? instance_of<BfloatSum>(tile, vector, args)
                         : instance_of<float>(tile, vector, args);
}

template <typename Element>
void launch_padding(const PadChannelsArgs& args, cudaStream_t stream) {
  const int vector = args.padded == 4 ? 4 : 8;
  const std::int64_t vectors = args.pixels * (args.padded / vector);
  const auto kernel = vector == 4 ? pad_channels<Element, 4> : pad_channels<Element, 8>;
  kernel<<<static_cast<unsigned>(ceil_div(vectors, 256)), 256, 0, stream>>>(args, vectors);
}

}  // namespace

cudaError_t prepare_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args) {
  return prepare_instance(compiled(tile, vector, args));
}

cudaError_t conv_gemm_has_clusters(bool& result) {
  cudaFuncAttributes attributes{};
  const cudaError_t status =
      cudaFuncGetAttributes(&attributes, instance_of<float>(kConvTiles[0], 8, false, false)->function);
  result = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

cudaError_t launch_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args,
                             cudaStream_t stream) {
  return launch_instance(compiled(tile, vector, args), args, stream);
}

cudaError_t launch_pad_channels(const PadChannelsArgs& args, cudaStream_t stream) {
  args.bf16 ? launch_padding<__nv_bfloat16>(args, stream) : launch_padding<__half>(args, stream);
  return cudaGetLastError();
}

}  // namespace pipit::internal::cuda
