// What the INT8 candidates share on the host.
#pragma once

#include <cstdlib>
#include <span>

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

/// Whether no x can make a sum reach `limit` in magnitude. weights [bias.size(), depth].
inline bool sums_stay_below(std::span<const std::int8_t> weights, std::span<const std::int32_t> bias,
                            std::int64_t limit) {
  constexpr std::int64_t kLargestInput = 128;
  const std::size_t depth = weights.size() / bias.size();
  for (std::size_t o = 0; o < bias.size(); ++o) {
    std::int64_t most = std::abs(static_cast<std::int64_t>(bias[o]));
    for (const std::int8_t w : weights.subspan(o * depth, depth)) most += kLargestInput * std::abs(w);
    if (most >= limit) return false;
  }
  return true;
}

}  // namespace pipit::cuda
