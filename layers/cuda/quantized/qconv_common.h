// What the INT8 candidates share on the host.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "engine/plan/kernel.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/pair_bounds.h"
#include "layers/ops/qconv.h"

namespace pipit::cuda {

constexpr bool is_symmetric_i8(const Quantization& q) {
  return q.dtype == DType::i8 && q.zero_point == 0;
}

/// The bounds of an output's value: in steps of its scale, or real where it is not quantized.
inline StepBounds output_bounds(const Quantization& y, const Clamp& activation) {
  if (y.quantized()) return step_bounds(y, activation.low, activation.high);
  return {activation.low, activation.high};
}

/// What the residual's integers are multiplied by.
inline float residual_factor(const QConvAttributes& a) {
  return a.residual.scale / (a.y.quantized() ? a.y.scale : 1.0F);
}

/// Of every output; zeros where the node has none. It must be a constant.
inline std::vector<std::int32_t> qconv_biases(const NodeSpec& spec) {
  std::vector<std::int32_t> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]));
  if (const Tensor* given = spec.constant(2)) {
    const auto values = given->values<std::int32_t>();
    bias.assign(values.begin(), values.end());
  }
  return bias;
}

/// The most that a sum can be in magnitude, and a result in steps of y before it is clamped, whatever x is.
struct MostOfInt8 {
  std::int64_t sum = 0;
  double steps = 0;

  /// Whether the short arithmetic of int8_math.cuh gives the specification's bits.
  bool is_small() const { return sum < kSmallSum && steps < kMostSteps; }
};

/// weights [bias.size(), depth] of a QConv; bias: as the kernel adds it.
inline MostOfInt8 most_of_int8(const NodeSpec& spec, std::span<const std::int8_t> weights,
                               std::span<const std::int32_t> bias) {
  constexpr std::int64_t kLargestInput = 128;
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const std::vector<float> multipliers =
      requantization_multipliers(a, static_cast<std::int64_t>(bias.size()));
  const double added = spec.has_input(3) ? std::abs(double{residual_factor(a)}) * kLargestInput : 0;
  const std::size_t depth = weights.size() / bias.size();
  MostOfInt8 most;
  for (std::size_t o = 0; o < bias.size(); ++o) {
    std::int64_t sum = std::abs(static_cast<std::int64_t>(bias[o]));
    for (const std::int8_t w : weights.subspan(o * depth, depth)) sum += kLargestInput * std::abs(w);
    most.sum = std::max(most.sum, sum);
    most.steps = std::max(most.steps, static_cast<double>(sum) * std::abs(double{multipliers[o]}) + added);
  }
  return most;
}

}  // namespace pipit::cuda
