// Numbers that distinguish how a foreign kernel may round between int32 sums and INT8.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/ops/quantization.h"

namespace pipit::internal::cuda {

/// One value per output channel for y = requantize((0 + bias) * multiplier + residual * kProbeResidualScale, bounds,
/// 0), which layers/ops/quantization.h rounds after every operation.
struct RequantizationProbe {
  static constexpr float kResidualScale = 7.3F;

  std::vector<std::int32_t> bias;
  std::vector<float> multiplier;
  std::vector<std::int8_t> residual;
  std::vector<float> value;  ///< before clamping and rounding
};

/// With a residual: values on which either of the two contractions to a multiply-add ends at another integer, in turns,
/// and values beyond `bounds`. Without one: ties, values next to them, values beyond `bounds`, sums that f32 does not
/// have. The same for equal arguments; where `bounds` leave no room for a tie, values beyond them alone.
RequantizationProbe requantization_probe(std::size_t channels, bool residual, const StepBounds& bounds);

}  // namespace pipit::internal::cuda
