// What the candidate of qconv_depthwise.cpp asks of the kernels in qconv_depthwise.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "layers/cuda/conv/depthwise_geometry.h"
#include "layers/cuda/conv/pair_bounds.h"
#include "layers/cuda/device/quantized_types.h"

namespace pipit::cuda {

/// A depthwise INT8 convolution as QConv specifies it.
struct QDepthwiseArgs : DepthwiseGeometry {
  const void* x = nullptr;
  void* y = nullptr;
  std::uint32_t flip = 0;     ///< IntegerOperand's of x
  std::uint32_t padding = 0;  ///< four bytes of x that stand for 0
  /// [parts][channels / 4][4]: word c of a part is four rows of taps of one column of channel c, the newest in the
  /// highest byte. In a window of 5 rows a part for every column of the fifth row follows, its tap in byte c, in one of
  /// 7 a part for every column of its three oldest rows.
  const std::int32_t* weights = nullptr;
  /// Per channel, less the zero point of x (as flipped) times the sum of the weights.
  const std::int32_t* bias = nullptr;
  const float* multipliers = nullptr;  ///< per channel
  bool small = false;                  ///< as ConvGemmArgs has it
  float low = 0, high = 0;             ///< as in StepBounds
  PairBounds whole_bounds;             ///< of bytes: both as they are rounded
  StoredType stored = StoredType::i8;  ///< i8 for u8 too, f16 or f32
  /// For bytes: what a value in steps, as a signed byte, becomes: y's zero point and a QUnary that follows.
  /// Null: itself.
  const std::uint8_t* table = nullptr;
};

/// Taps' columns and, where there are more than four rows, those of the others.
constexpr int depthwise_parts(int window) {
  return window == 3 ? 3 : 2 * window;
}

/// Sets the columns and rows of a thread that suit the current GPU, by everything else in `args`; overlap: whether
/// launches may overlap.
cudaError_t prepare_qconv_depthwise(QDepthwiseArgs& args, bool& overlap);
/// After prepare_qconv_depthwise: launches only.
cudaError_t launch_qconv_depthwise_quads(const QDepthwiseArgs& args, bool overlap, cudaStream_t stream);

}  // namespace pipit::cuda
