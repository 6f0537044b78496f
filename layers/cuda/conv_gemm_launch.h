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
  Divisor positions, out_width, channels,
      kernel_width;                ///< out_h * out_w, out_w, in_c, kernel_w of the shape
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
  /// Start while the kernel in front still runs, and wait for it before reading x (Hopper and later).
  bool overlap = false;
};

/// The geometry's part of the arguments; pointers and activation are left to the caller.
inline ConvGemmArgs conv_gemm_args(const ConvShape& shape, const ConvTile& tile) {
  ConvGemmArgs args;
  args.shape = shape;
  args.positions = Divisor(shape.out_h * shape.out_w);
  args.out_width = Divisor(shape.out_w);
  args.channels = Divisor(shape.in_c);
  args.kernel_width = Divisor(shape.kernel_w);
  args.rows = static_cast<int>(shape.rows());
  args.depth = static_cast<int>(packed_depth(shape));
  args.steps = args.depth / kTileDepth;
  args.column_tiles = static_cast<int>(ceil_div(shape.out_c, tile.columns));
  args.splits = tile.splits;
  return args;
}

/// x with any strides to [pixels, padded] with zeros in the channels beyond `channels`.
struct PadChannelsArgs {
  const void* x = nullptr;  ///< f16 where x_half, else f32
  bool x_half = true;
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
/// Whether the kernels that the current GPU runs were compiled for clusters and overlapping launches (9.0 and
/// later); a newer GPU may have to run those compiled for an older one.
cudaError_t conv_gemm_has_clusters(bool& result);
/// After prepare_conv_gemm: launches only.
cudaError_t launch_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args, cudaStream_t stream);
cudaError_t launch_pad_channels(const PadChannelsArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
