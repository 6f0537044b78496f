#include "quant/qweights.h"

#include <algorithm>
#include <cmath>

#include "engine/error.h"

namespace pipit {

namespace {

constexpr float kMostBias = 1U << 30;

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) fail("a weight or bias is {}", x);
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

}  // namespace

QuantizedWeights quantize_weights(const Shape& shape, std::span<const float> weights,
                                  std::span<const float> bias, float input_scale, bool per_channel) {
  const auto outputs = static_cast<std::size_t>(shape[0]);
  const std::size_t depth = weights.size() / outputs;
  QuantizedWeights result{
      Tensor(TensorDesc{shape, DType::i8}), Tensor(TensorDesc{Shape{shape[0]}, DType::i32}), {}};
  const float largest_of_all = largest_magnitude(weights);
  largest_magnitude(bias);
  for (std::size_t o = 0; o < outputs; ++o) {
    const std::span<const float> channel = weights.subspan(o * depth, depth);
    float scale = (per_channel ? largest_magnitude(channel) : largest_of_all) / 127.0F;
    const float b = bias.empty() ? 0.0F : bias[o];
    scale = std::max(scale, std::abs(b) / (input_scale * kMostBias));
    if (!(scale > 0) || !std::isfinite(scale)) scale = 1;
    result.scales.push_back(scale);
    std::int8_t* to = result.weights.values<std::int8_t>().data() + o * depth;
    for (std::size_t i = 0; i < depth; ++i)
      to[i] = static_cast<std::int8_t>(std::nearbyint(std::clamp(channel[i] / scale, -127.0F, 127.0F)));
    const double steps = static_cast<double>(b) / (static_cast<double>(input_scale) * scale);
    result.bias.values<std::int32_t>()[o] =
        static_cast<std::int32_t>(std::nearbyint(std::clamp(steps, -1.1e9, 1.1e9)));
  }
  return result;
}

}  // namespace pipit
