// The depthwise convolutions whose threads slide down rows: what they handle, and what a thread computes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layers/cuda/device/quantized_types.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

/// A depthwise convolution of two dimensions, window 3x3, 5x5 or 7x7, the same stride of 1 or 2 along both, dilation 1,
/// any padding; x and y are [batch, h, w, channels].
struct DepthwiseGeometry {
  int batch = 1, channels = 4;  ///< channels: a multiple of 4
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1;
  int pad_h = 0, pad_w = 0;
  int window = 3, stride = 1;
  int columns = 1, rows = 1;  ///< of y that a thread computes
};

// What the candidate of Conv asks of its kernels.

/// x and y are f16 or bf16, sums and everything else f32.
struct ConvDepthwiseArgs : DepthwiseGeometry {
  bool bf16 = false;
  const void* x = nullptr;
  void* y = nullptr;
  const float* weights = nullptr;  ///< [taps][channels]
  const float* bias = nullptr;     ///< [channels]
  float low = 0, high = 0;         ///< activation: clamp to [low, high]
  HalfFunction function;           ///< of what y would be, after the clamp
};

/// Sets the columns and rows of a thread that suit the current GPU, by everything else in `args`; overlap: whether
/// launches may overlap.
cudaError_t prepare_conv_depthwise_quads(ConvDepthwiseArgs& args, bool& overlap);
/// After prepare_conv_depthwise_quads: launches only.
cudaError_t launch_conv_depthwise_quads(const ConvDepthwiseArgs& args, bool overlap, cudaStream_t stream);

// What the candidate of QConv asks of its kernels.

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
  StoredType stored = StoredType::i8;  ///< i8 for u8 too, f16, bf16 or f32
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

/// Weights [channels, 1, window, window] as QDepthwiseArgs has them.
inline std::vector<std::int32_t> pack_depthwise(std::span<const std::int8_t> from, std::size_t channels,
                                                int window) {
  const auto k = static_cast<std::size_t>(window);
  std::vector<std::int32_t> packed(static_cast<std::size_t>(depthwise_parts(window)) * channels);
  const auto put = [&](std::size_t part, std::size_t c, std::size_t byte, std::int8_t weight) {
    std::int32_t& word = packed[part * channels + c];
    word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                     std::uint32_t{static_cast<std::uint8_t>(weight)} << byte * 8);
  };
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t r = 0; r < k; ++r) {
      for (std::size_t column = 0; column < k; ++column) {
        const std::int8_t weight = from[(c * k + r) * k + column];
        if (k == 5 && r == 4) {
          put(k + column, c, c % 4, weight);
        } else if (k == 5) {
          put(column, c, r, weight);
        } else {
          const std::size_t age = k - 1 - r;  // rows newer than this one
          put(age < 4 ? column : k + column, c, 3 - age % 4, weight);
        }
      }
    }
  }
  return packed;
}

}  // namespace pipit::internal::cuda
