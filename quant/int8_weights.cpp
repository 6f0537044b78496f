#include "quant/int8_weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

// Sums are int32: readers of other engines leave a bias as little as half of that, and some units more or less to the
// rounding of scales.
constexpr double kMaxBias = 1U << 29;
// What one unit of the sums is worth must be a normal number, with room for rounding.
constexpr double kMinUnit = 2.0 * FLT_MIN;

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) fail("a weight or bias is {}", x);
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

// The scale of a channel whose largest weight is `largest`. The bias decides where it would not fit otherwise: weights
// that small beside it change nothing.
float channel_scale(float largest, float bias, float input_scale) {
  if (largest == 0 && bias == 0) return 1;
  const double unit = std::max(kMinUnit, std::abs(static_cast<double>(bias)) / kMaxBias);
  const double scale = std::max({static_cast<double>(largest) / 127, unit / input_scale, kMinUnit});
  if (scale > FLT_MAX)
    fail("a bias of {} is beyond int32 in units of an input scale of {}", bias, input_scale);
  return static_cast<float>(scale);
}

double in_units(float bias, float input_scale, float scale) {
  return static_cast<double>(bias) / (static_cast<double>(input_scale) * scale);
}

}  // namespace

QuantizedWeights quantize_weights(const Shape& shape, std::span<const float> weights,
                                  std::span<const float> bias, float input_scale, bool per_channel) {
  const auto outputs = static_cast<std::size_t>(shape[0]);
  const std::size_t depth = weights.size() / outputs;
  QuantizedWeights result{Tensor(TensorDesc{shape, DType::i8}), {}, {}};
  const float largest_of_all = largest_magnitude(weights);
  largest_magnitude(bias);
  for (std::size_t o = 0; o < outputs; ++o) {
    const std::span<const float> channel = weights.subspan(o * depth, depth);
    const float b = bias.empty() ? 0.0F : bias[o];
    const float scale =
        channel_scale(per_channel ? largest_magnitude(channel) : largest_of_all, b, input_scale);
    result.scales.push_back(scale);
    std::int8_t* to = result.weights.values<std::int8_t>().data() + o * depth;
    for (std::size_t i = 0; i < depth; ++i)
      to[i] = static_cast<std::int8_t>(std::nearbyint(std::clamp(channel[i] / scale, -127.0F, 127.0F)));
  }
  const std::vector<float> zeros(bias.empty() ? outputs : 0, 0.0F);
  result.bias = quantize_bias(bias.empty() ? zeros : bias, input_scale, result.scales);
  return result;
}

Tensor quantize_bias(std::span<const float> bias, float input_scale, std::span<const float> scales) {
  Tensor integers(TensorDesc{Shape{std::ssize(bias)}, DType::i32});
  for (std::size_t o = 0; o < bias.size(); ++o)
    integers.values<std::int32_t>()[o] =
        static_cast<std::int32_t>(std::nearbyint(in_units(bias[o], input_scale, scales[o])));
  return integers;
}

bool fits_bias(float bias, float input_scale, float scale) {
  return static_cast<double>(input_scale) * scale >= kMinUnit &&
         std::abs(in_units(bias, input_scale, scale)) <= kMaxBias;
}

}  // namespace pipit::internal
