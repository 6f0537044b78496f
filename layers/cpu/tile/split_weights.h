// Weights in 8 bits with zero points, as tiles take them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/dtype.h"

namespace pipit::internal {

/// Weights less their zero points, from -255 to 255, as sums of parts in s8. Of the second part, and of the third that
/// only 255 needs, most are zero, so that tiles leave out most of their steps (KeptSteps).
struct SplitWeights {
  int parts = 1;
  std::vector<std::int8_t> values;  ///< [output][part][depth]

  /// `weights` [output][depth], i8 or u8; a zero point for each output.
  SplitWeights(const std::byte* weights, DType type, std::span<const int> zero_points, std::int64_t depth);
};

}  // namespace pipit::internal
