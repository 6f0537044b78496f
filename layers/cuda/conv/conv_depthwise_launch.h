// What the candidate of conv_depthwise.cpp asks of the kernels in conv_depthwise.cu.
#pragma once

#include <cuda_runtime_api.h>

#include "layers/cuda/conv/depthwise_geometry.h"
#include "layers/cuda/conv/half_function.h"

namespace pipit::cuda {

/// x and y are f16, sums and everything else f32.
struct ConvDepthwiseArgs : DepthwiseGeometry {
  const void* x = nullptr;
  void* y = nullptr;
  const float* weights = nullptr;  ///< [taps][channels]
  const float* bias = nullptr;     ///< [channels]
  float low = 0, high = 0;         ///< activation: clamp to [low, high]
  HalfFunction function;           ///< of what y would be, behind the clamp
};

/// Sets the columns and rows of a thread that suit the current GPU, by everything else in `args`; overlap: whether
/// launches may overlap.
cudaError_t prepare_conv_depthwise_quads(ConvDepthwiseArgs& args, bool& overlap);
/// After prepare_conv_depthwise_quads: launches only.
cudaError_t launch_conv_depthwise_quads(const ConvDepthwiseArgs& args, bool overlap, cudaStream_t stream);

}  // namespace pipit::cuda
