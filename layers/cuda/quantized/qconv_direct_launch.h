// What the candidates of qconv_direct.cpp ask of the kernels in qconv_direct.cu.
#pragma once

#include "layers/cuda/conv/conv_direct_launch.h"
#include "layers/cuda/device/quantized_types.h"

namespace pipit::cuda {

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

}  // namespace pipit::cuda
