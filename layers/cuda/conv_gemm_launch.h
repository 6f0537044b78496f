// What the implicit-GEMM candidate (conv_implicit_gemm.cpp) asks of its kernels (conv_implicit_gemm.cu). nvcc
// does not get the host code to see: it cannot compile its format strings.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/conv_tile.h"

namespace pipit::cuda {

struct ConvGemmArgs {
  ConvShape shape;
  const Half* x = nullptr;         ///< [batch, in_h, in_w, in_c]
  const Half* weights = nullptr;   ///< pack_conv_weights
  const float* bias = nullptr;     ///< one per packed weight row
  const Half* residual = nullptr;  ///< like y, or null
  Half* y = nullptr;               ///< [rows, out_c]
  float low = 0;                   ///< activation: clamp to [low, high]
  float high = 0;
  int rows = 0;
  int depth = 0;         ///< elements of a packed weight row
  int steps = 0;         ///< depth / kTileDepth
  int column_tiles = 1;  ///< tiles side by side; blockIdx.x counts through them first
  int splits = 1;        ///< blocks of one cluster (gridDim.y) that share the steps of a tile
};

/// x with any strides to [pixels, padded] with zeros in the channels beyond `channels`.
struct PadChannelsArgs {
  const Half* x = nullptr;
  Half* y = nullptr;
  int channels = 1;
  int padded = 4;  ///< 4 or a multiple of 8
  std::int64_t pixels = 0;
  std::int64_t pixels_per_image = 1;
  std::int64_t image_stride = 0, channel_stride = 0, pixel_stride = 0;  ///< of x, in elements
};

/// Lets the kernel of this tile use its shared memory on the current GPU. vector: 4 or 8 channels of x that are
/// copied at once. cudaErrorInvalidValue when there is no such kernel.
cudaError_t prepare_conv_gemm(const ConvTile& tile, int vector);
/// After prepare_conv_gemm: launches only.
cudaError_t launch_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args, cudaStream_t stream);
cudaError_t launch_pad_channels(const PadChannelsArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
