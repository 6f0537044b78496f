// What the candidates of conv_direct.cpp ask of the kernels in conv_direct.cu. nvcc does not get the host code to
// see: it cannot compile its format strings.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pipit::cuda {

/// Element strides of an image tensor [batch, channels, d, h, w].
struct ImageStrides {
  std::int64_t batch = 0;
  std::int64_t channel = 0;
  std::int64_t d = 0, h = 0, w = 0;
};

/// A convolution over three spatial dimensions (leading ones of extent 1 where there are fewer), any groups.
struct DirectConvArgs {
  const void* x = nullptr;
  const void* residual = nullptr;  ///< or null
  void* y = nullptr;
  /// conv_direct: [groups][taps][group_in][group_out rounded up to 4]; conv_depthwise: [taps][channels].
  const float* weights = nullptr;
  const float* bias = nullptr;  ///< [groups * group_out]
  ImageStrides x_strides, y_strides, residual_strides;
  std::int64_t batch = 1;
  int groups = 1, group_in = 1, group_out = 1;
  int in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
  float low = 0, high = 0;  ///< activation: clamp to [low, high]
};

/// Any strides. half: x, residual and y are f16, else f32. wide: x's channels lie together (stride 1), group_in
/// and the other strides are multiples of 4.
cudaError_t launch_conv_direct(const DirectConvArgs& args, bool half, bool wide, cudaStream_t stream);

/// group_in = group_out = 1; all channel strides are 1, the layouts [.., channels].
cudaError_t launch_conv_depthwise(const DirectConvArgs& args, bool half, cudaStream_t stream);

}  // namespace pipit::cuda
