// Weights and bias of one layer as INT8 kernels take them.
#pragma once

#include <vector>

#include "engine/graph/tensor.h"

namespace pipit::internal {

struct QuantizedWeights {
  Tensor weights;             ///< i8, [O, I, kernel...], in the levels of their bits
  Tensor bias;                ///< i32, [O], in units of input scale * weight scale
  std::vector<float> scales;  ///< [O]
};

/// The least and the largest integer of weights in 8 or 4 bits: [-127, 127] or [-8, 7].
struct WeightLevels {
  int low = -127;
  int high = 127;
};
constexpr WeightLevels weight_levels(int bits) {
  return bits == 4 ? WeightLevels{-8, 7} : WeightLevels{};
}

/// `weights`: row-major [O, I, kernel...] values of that shape; bias: O values or none. Symmetric scales, the largest
/// magnitude of a channel (or of all, unless per_channel) at 127; 1 for a channel of zeros without a bias. A channel's
/// scale is enlarged where its bias would leave the range of 2^29, which leaves readers of a written file half of what
/// int32 holds and more, and where input scale * weight scale would be no normal number. Throws Error when a number is
/// not finite, or a bias is beyond all scales.
/// With 4 `bits` integers are in [-8, 7], and the scale of a channel is the one of nine, from the least that clips
/// nothing down to 0.6 of it, of the least squared error.
QuantizedWeights quantize_weights(const Shape& shape, std::span<const float> weights,
                                  std::span<const float> bias, float input_scale, bool per_channel,
                                  int bits = 8);

/// Biases (f32, one per scale) in units of input scale * weight scale.
Tensor quantize_bias(std::span<const float> bias, float input_scale, std::span<const float> scales);

/// Whether that leaves a bias within 2^29, and input scale * weight scale a normal number.
bool fits_bias(float bias, float input_scale, float scale);

}  // namespace pipit::internal
