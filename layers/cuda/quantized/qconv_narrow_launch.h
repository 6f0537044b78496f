// What the candidate "narrow_gemm" of QConv asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "layers/cuda/conv/pair_bounds.h"
#include "layers/cuda/quantized/qconv_narrow_plan.h"

namespace pipit::cuda {

struct NarrowArgs {
  NarrowShape shape;
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
cudaError_t prepare_narrow_gemm(const NarrowArgs& args, bool adds, int& blocks, bool& overlap);
cudaError_t launch_narrow_gemm(const NarrowArgs& args, int blocks, bool overlap, cudaStream_t stream);

}  // namespace pipit::cuda
