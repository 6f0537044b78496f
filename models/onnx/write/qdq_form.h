// How INT8 layers are written: readers fuse different patterns of QuantizeLinear and DequantizeLinear.
#pragma once

namespace pipit::internal {

/// What becomes of Relu and Clip of a layer whose result is quantized.
enum class WrittenActivation {
  rounded,  ///< Relu or Clip after another rounding of the same scale, so that the layer itself ends with one
  plain,    ///< Relu or Clip between the layer and its rounding
  leaky,  ///< Relu after another rounding as LeakyRelu of slope 0, which ONNX Runtime has for every zero point
};

/// The first member that differs says what the file is for; none of them changes what the integers stand for.
struct QdqForm {
  WrittenActivation activation = WrittenActivation::rounded;
  /// Biases in f32: the values of the integers. TensorRT dequantizes no int32.
  bool float_bias = false;
  /// A convolution is rounded before its residual is added, so that both are layers in INT8 by themselves. The scale
  /// is the finest one that clips nothing that the sum does not clip. Otherwise the sum alone is rounded.
  bool rounded_residual = false;
  /// A layer with weights is rounded before the activation function that alone reads it, as the plan says. Otherwise
  /// the function reads the real values.
  bool rounded_function = true;
  /// What only moves elements is between DequantizeLinear and QuantizeLinear like other layers. Otherwise its readers
  /// get the real values.
  bool rounded_moves = true;
  /// Weights of INT8 layers that lie in [-8, 7] are INT4, which opset 21 has.
  bool int4_weights = false;
};

}  // namespace pipit::internal
