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

std::int8_t to_integer(float weight, float scale, WeightLevels levels) {
  return static_cast<std::int8_t>(std::nearbyint(
      std::clamp(weight / scale, static_cast<float>(levels.low), static_cast<float>(levels.high))));
}

// The scale that weights in few bits have for themselves. Clipping the largest ones may serve the others better.
double clipping_scale(std::span<const float> weights, WeightLevels levels) {
  double whole = 0;
  for (const float w : weights)
    whole = std::max(whole, static_cast<double>(w) / (w < 0 ? levels.low : levels.high));
  double best = whole, least = INFINITY;
  constexpr int kSteps = 8;
  constexpr double kStep = 0.05;
  for (int step = 0; step <= kSteps && whole > kMinUnit; ++step) {
    const double scale = whole * (1 - kStep * step);
    double error = 0;
    for (const float w : weights) {
      const double e = w - scale * to_integer(w, static_cast<float>(scale), levels);
      error += e * e;
    }
    if (error < least) least = error, best = scale;
  }
  return best;
}

// The scale of a channel whose weights alone would have `own`. The bias decides where it would not fit otherwise:
// weights that small beside it change nothing.
float channel_scale(double own, float bias, float input_scale) {
  if (own == 0 && bias == 0) return 1;
  const double unit = std::max(kMinUnit, std::abs(static_cast<double>(bias)) / kMaxBias);
  const double scale = std::max({own, unit / input_scale, kMinUnit});
  if (scale > FLT_MAX)
    fail("a bias of {} is beyond int32 in units of an input scale of {}", bias, input_scale);
  return static_cast<float>(scale);
}

double in_units(float bias, float input_scale, float scale) {
  return static_cast<double>(bias) / (static_cast<double>(input_scale) * scale);
}

}  // namespace

QuantizedWeights quantize_weights(const Shape& shape, std::span<const float> weights,
                                  std::span<const float> bias, float input_scale, bool per_channel,
                                  int bits) {
  const auto outputs = static_cast<std::size_t>(shape[0]);
  const std::size_t depth = weights.size() / outputs;
  QuantizedWeights result{Tensor(TensorDesc{shape, DType::i8}), {}, {}};
  const WeightLevels levels = weight_levels(bits);
  const auto own_scale = [&](std::span<const float> sharing) {
    const double largest = largest_magnitude(sharing);
    return bits == 4 ? clipping_scale(sharing, levels) : largest / levels.high;
  };
  const double shared = own_scale(weights);
  largest_magnitude(bias);
  for (std::size_t o = 0; o < outputs; ++o) {
    const std::span<const float> channel = weights.subspan(o * depth, depth);
    const float b = bias.empty() ? 0.0F : bias[o];
    const float scale = channel_scale(per_channel ? own_scale(channel) : shared, b, input_scale);
    result.scales.push_back(scale);
    std::int8_t* to = result.weights.values<std::int8_t>().data() + o * depth;
    for (std::size_t i = 0; i < depth; ++i) to[i] = to_integer(channel[i], scale, levels);
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
