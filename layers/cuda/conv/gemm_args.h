// What the implicit-GEMM candidates ask of their kernels. Kept apart from host code, because nvcc cannot compile format
// strings.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

/// The mean of y of every image and channel is written instead of y: a tile has whole images.
struct ConvAverage {
  int images = 0;     ///< of a tile; 0: y is written
  int rows = 0;       ///< of a tile that belong to them: from one row tile to the next
  int positions = 1;  ///< out_h * out_w
  float factor = 1;   ///< 1 / positions
  AverageResult result;
};

/// INT8 with scales that are found at run time.
struct ConvDynamic {
  const float* scales = nullptr;   ///< of x
  Divisor rows;                    ///< of y that share one
  const void* residual = nullptr;  ///< of the type of y, or null
};

/// Channels of x and positions along k are counted in units of 16 bits: halves or bfloat16, or in INT8 pairs of bytes.
struct ConvGemmArgs {
  ConvShape shape;  ///< in_c in units
  Divisor positions, out_width, channels,
      kernel_width;                ///< out_h * out_w, out_w, in_c, kernel_w of the shape
  const void* x = nullptr;         ///< [batch, in_h, in_w, pixel_units()], 16-byte aligned
  const void* weights = nullptr;   ///< pack_conv_weights or pack_qconv_weights
  const void* bias = nullptr;      ///< one per packed weight row: f32, in INT8 i32
  const void* residual = nullptr;  ///< shaped like y, f16, bf16 or i8; or null
  void* y = nullptr;               ///< [rows, out_c]: f16 or bf16, in INT8 as `stored` says
  float low = 0;                   ///< activation: clamp to [low, high]; for an i8 y its StepBounds
  float high = 0;
  const float* multipliers = nullptr;   ///< INT8: one per packed weight row
  float residual_scale = 0;             ///< INT8: of the residual, in steps of y
  StoredType stored = StoredType::i8;   ///< INT8
  const std::uint8_t* table = nullptr;  ///< INT8 in i8: what y's bytes become (QUnary), or null
  PairBounds whole_bounds;              ///< INT8 in i8: low and high as they are rounded
  bool small = false;  ///< INT8: no sum reaches kSmallSum in magnitude, no result kMaxSteps (stores.cuh)
  const DepthBlock* blocks = nullptr;  ///< depth_blocks; null: all blocks, which are found without a list
  int tile_blocks = 0;  ///< from one column tile's blocks to the next's: 0 where they are the same
  const int* tile_steps = nullptr;  ///< of every column tile, or null where all have `steps`
  int rows = 0;
  int depth = 0;         ///< units of a packed weight row
  int steps = 0;         ///< depth / kTileDepth, the maximum over all column tiles
  int column_tiles = 1;  ///< tiles side by side; blockIdx.x counts through them first
  int splits = 1;        ///< blocks of one cluster (gridDim.y) that share the steps of a tile
  /// Start while the previous kernel still runs, and wait for it before reading x (Hopper and later).
  bool overlap = false;
  HalfFunction function;  ///< fp16 and bf16, without `blocks`: of what y would be, after the clamp
  ConvDynamic dynamic;    ///< INT8: bias is f32, one per packed weight row, and residual null
  ConvAverage
      average;  ///< in INT8 of a y that is not i8, without `blocks`; y is [batch, out_c] of its result
};

/// The offset of an element of y, in elements.
PIPIT_HOST_DEVICE inline std::int64_t output_offset(const ConvGemmArgs& args, int row, int column) {
  return static_cast<std::int64_t>(row) * args.shape.out_c + column;
}

/// The geometry's part of the arguments; pointers and activation are left to the caller.
inline ConvGemmArgs conv_gemm_args(const ConvShape& shape, const KeptDepth& depth, const ConvTile& tile) {
  ConvGemmArgs args;
  args.shape = shape;
  args.positions = Divisor(shape.out_h * shape.out_w);
  args.out_width = Divisor(shape.out_w);
  args.channels = Divisor(shape.in_c);
  args.kernel_width = Divisor(shape.kernel_w);
  args.rows = static_cast<int>(shape.rows());
  args.steps = depth.most_steps(tile.columns);
  args.depth = args.steps * kTileDepth;
  args.column_tiles = static_cast<int>(ceil_div(shape.out_c, tile.columns));
  args.splits = tile.splits;
  return args;
}

/// x with any strides to [pixels, padded] with zeros in the channels beyond `channels`.
struct PadChannelsArgs {
  const void* x = nullptr;  ///< f32 where x_f32, else of y's type
  bool x_f32 = false;
  bool bf16 = false;  ///< of y: else f16
  std::uint16_t* y = nullptr;
  int channels = 1;
  int padded = 4;  ///< 4 or a multiple of 8
  std::int64_t pixels = 0;
  std::int64_t pixels_per_image = 1;
  std::int64_t image_stride = 0, channel_stride = 0, pixel_stride = 0;  ///< of x, in elements
};

/// x of any strides, i8, to [pixels, padded] with zeros in the channels beyond `channels`.
struct PadBytesArgs {
  const std::int8_t* x = nullptr;
  std::int8_t* y = nullptr;
  int channels = 1;
  int padded = 16;  ///< a multiple of 16
  std::int64_t pixels = 0;
  std::int64_t pixels_per_image = 1;
  std::int64_t image_stride = 0, channel_stride = 0, pixel_stride = 0;  ///< of x, in elements
};

/// Lets the kernel of this tile use its shared memory on the current GPU. vector: 4 or 8 channels of x that are
/// copied at once; of args only whether blocks are listed, and whether there is a function or an average count.
/// cudaErrorInvalidValue when there is no such kernel.
cudaError_t prepare_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args);
/// Whether the kernels that the current GPU runs were compiled for clusters and overlapping launches (9.0 and
/// later); a newer GPU may have to run those compiled for an older one.
cudaError_t conv_gemm_has_clusters(bool& result);
/// After prepare_conv_gemm: launches only.
cudaError_t launch_conv_gemm(const ConvTile& tile, int vector, const ConvGemmArgs& args, cudaStream_t stream);
cudaError_t launch_pad_channels(const PadChannelsArgs& args, cudaStream_t stream);
/// The same in INT8, for what y is stored as and whether there is a table or an average; x's units are copied eight
/// at once.
cudaError_t prepare_qconv_gemm(const ConvTile& tile, const ConvGemmArgs& args);
cudaError_t launch_qconv_gemm(const ConvTile& tile, const ConvGemmArgs& args, cudaStream_t stream);
/// The same for `dynamic`; y is f16 or f32.
cudaError_t prepare_dynamic_gemm(const ConvTile& tile);
cudaError_t launch_dynamic_gemm(const ConvTile& tile, const ConvGemmArgs& args, cudaStream_t stream);
cudaError_t launch_pad_bytes(const PadBytesArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
