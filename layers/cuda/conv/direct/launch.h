// What the candidates of Conv ask of their kernels (launch.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/graph/dtype.h"
#include "layers/cuda/device/quantized_types.h"

namespace pipit::internal::cuda {

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

/// Any strides. type: of x, residual and y, f32, f16 or bf16. wide: x's channels lie together (stride 1), group_in
/// and the other strides are multiples of 4.
cudaError_t launch_conv_direct(const DirectConvArgs& args, DType type, bool wide, cudaStream_t stream);

/// Weights computed at run time, of `type` and in any layout, become those of conv_direct: `packed` has
/// packed_weights(args) elements. strides: of the weights, whose batch are the outputs.
cudaError_t pack_direct_weights(const DirectConvArgs& args, const void* weights, const ImageStrides& strides,
                                DType type, float* packed, cudaStream_t stream);
/// [groups][taps][group_in][group_out rounded up to 4]
inline std::int64_t packed_weights(const DirectConvArgs& a) {
  const std::int64_t taps = std::int64_t{a.kernel[0]} * a.kernel[1] * a.kernel[2];
  return a.groups * taps * a.group_in * ((a.group_out + 3) / 4 * 4);
}
/// Likewise the biases, as f32.
cudaError_t pack_direct_biases(const void* biases, std::int64_t count, DType type, float* packed,
                               cudaStream_t stream);

/// group_in = group_out = 1; all channel strides are 1, the layouts [.., channels].
cudaError_t launch_conv_depthwise(const DirectConvArgs& args, DType type, cudaStream_t stream);

// What the candidates of QConv ask of theirs.

/// An INT8 convolution as QConv specifies it: any type, zero point and stride.
struct QDirectConvArgs {
  DirectConvArgs
      conv;  ///< geometry, strides, operands; weights and bias unused; low and high as in StepBounds
  IntegerOperand x, residual;
  /// x is f32 and becomes integers as Quantize makes them (not wide); else its scale is 0.
  float x_scale = 0;
  StepBounds x_bounds;
  StoredType y = StoredType::i8;
  int y_zero_point = 0;
  /// qconv_direct: [groups][taps][group_in][group_out rounded up to 4], or wide [groups][taps][group_in / 4]
  /// [group_out rounded up to 4][4]; qconv_depthwise: [taps][channels].
  const std::int8_t* weights = nullptr;
  const std::int32_t* bias = nullptr;  ///< [groups * group_out]
  const float* multipliers = nullptr;  ///< likewise
  float residual_scale = 0;            ///< in steps of y
};

/// wide: x's channels lie together (stride 1), group_in and the other strides are multiples of 4.
cudaError_t launch_qconv_direct(const QDirectConvArgs& args, bool wide, cudaStream_t stream);

/// group_in = group_out = 1; all channel strides are 1, the layouts [.., channels].
cudaError_t launch_qconv_depthwise(const QDirectConvArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
