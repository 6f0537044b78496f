// Kernels of the candidate "implicit_gemm" in fp16 and their launches.
#include <array>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/implicit_gemm/kernel.cuh"

namespace pipit::internal::cuda {

namespace {

// One thread per pixel and Vector channels.
template <int Vector>
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
    return args.x_half ? static_cast<const __half*>(args.x)[at]
                       : __float2half_rn(static_cast<const float*>(args.x)[at]);
  };
  __align__(16) __half values[Vector];
#pragma unroll
  for (int c = 0; c < Vector; ++c) {
    values[c] = first + c < args.channels ? read(from + (first + c) * args.channel_stride) : __half(0.0F);
  }
  Half* to = args.y + index * Vector;
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
using Large = ConvGemmTraits<128, 128, 2, 4, 3, 8, 2>;
using Square = ConvGemmTraits<64, 64, 2, 2, 4, 8, 3>;

// Without lists.
template <template <typename> typename Epilogue>
std::array<ConvGemmInstance, 5> instances() {
  return {
      instance<Large, false, Epilogue>(), instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3>, false, Epilogue>(),
      instance<Square, false, Epilogue>(), instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4>, false, Epilogue>(),
      instance<ConvGemmTraits<128, 64, 2, 2, 3, 4, 3>, false, Epilogue>()};
}

const ConvGemmInstance* instance_of(const ConvTile& tile, int vector, bool listed, bool function) {
  static const std::array kPlain = instances<PlainEpilogue>();
  static const std::array kFunction = instances<FunctionEpilogue>();
  static const std::array kListed{instance<Large, true, PlainEpilogue>(),
                                  instance<Square, true, PlainEpilogue>()};
  if (listed) return function ? nullptr : find_instance(kListed, tile, vector, true);
  return find_instance(function ? kFunction : kPlain, tile, vector);
}

const ConvGemmInstance* instance_of(const ConvTile& tile, int vector, const ConvGemmArgs& args) {
  static const auto kAverages = average_instances<float, false, HalfAverage>();
  if (args.average.images > 0) return find_instance(kAverages, tile, vector);
  return instance_of(tile, vector, args.blocks != nullptr, args.function.gate != HalfGate::none);
}

}  // namespace

cudaError_t prepare_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args) {
  return prepare_instance(instance_of(tile, vector, args));
}

cudaError_t conv_gemm_has_clusters(bool& result) {
  cudaFuncAttributes attributes{};
  const cudaError_t status =
      cudaFuncGetAttributes(&attributes, instance_of(kConvTiles[0], 8, false, false)->function);
  result = status == cudaSuccess && attributes.ptxVersion >= 90;
  return status;
}

cudaError_t launch_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args,
                             cudaStream_t stream) {
  return launch_instance(instance_of(tile, vector, args), args, stream);
}

cudaError_t launch_pad_channels(const PadChannelsArgs& args, cudaStream_t stream) {
  const int vector = args.padded == 4 ? 4 : 8;
  const std::int64_t vectors = args.pixels * (args.padded / vector);
  const auto kernel = vector == 4 ? pad_channels<4> : pad_channels<8>;
  kernel<<<static_cast<unsigned>(ceil_div(vectors, 256)), 256, 0, stream>>>(args, vectors);
  return cudaGetLastError();
}

}  // namespace pipit::internal::cuda
