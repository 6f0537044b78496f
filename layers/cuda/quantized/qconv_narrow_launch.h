// What the candidate "narrow_gemm" of QConv asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/image_scale.h"
#include "layers/cuda/conv/pair_bounds.h"
#include "layers/cuda/quantized/qconv_narrow_plan.h"

namespace pipit::cuda {

/// What x is: rows of bytes, or the user's image, of which windows are read.
enum class NarrowFrom : std::uint8_t { bytes, window };

/// Where a window of the user's image lies: up to three rows, three columns and four channels.
struct NarrowWindow {
  const float* x = nullptr;
  int channels = 0, in_h = 0, in_w = 0;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  int x_image = 0, x_channel = 0, x_row = 0, x_pixel = 0;  ///< strides in elements
  Divisor positions, out_width;                            ///< out_h * out_w, out_w
  ImageScale scale;
};

struct NarrowArgs {
  NarrowShape shape;  ///< of a window: kNarrowWindowBytes for channels
  NarrowFrom from = NarrowFrom::bytes;
  bool adds = false;  ///< a residual
  NarrowWindow window;
  int positions = 0;                      ///< rows of x and y
  int packed_bytes = 0;                   ///< NarrowShape::shared_bytes
  const std::int8_t* x = nullptr;         ///< [positions, channels], 8-byte aligned
  const std::byte* packed = nullptr;      ///< pack_narrow; biases with kMagicBits
  const std::uint8_t* table = nullptr;    ///< what y's bytes become (QUnary), or null; not with a residual
  const std::int8_t* residual = nullptr;  ///< like y, or null
  std::int8_t* y = nullptr;               ///< [positions, outputs], 16-byte aligned
  float residual_scale = 0;               ///< in steps of y
  PairBounds bounds;
  bool relu = false;  ///< the lower bound is 0
};

/// Blocks that the current GPU runs at once, of the kernel for these arguments; whether its launches may overlap.
cudaError_t prepare_narrow_gemm(const NarrowArgs& args, int& blocks, bool& overlap);
cudaError_t launch_narrow_gemm(const NarrowArgs& args, int blocks, bool overlap, cudaStream_t stream);

}  // namespace pipit::cuda
