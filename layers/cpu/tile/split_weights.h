// Weights in 8 bits with zero points, as tiles take them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/dtype.h"
#include "layers/cpu/tile/byte_weights.h"

namespace pipit::internal {

/// Weights less their zero points, from -255 to 255, as sums of parts in s8: an output is [parts()][depth]. Of the
/// second part, and of the third that only 255 needs, most are zero, so that tiles leave out most of their steps
/// (KeptSteps).
class SplitWeights final : public ByteWeights {
 public:
  /// `weights` [output][depth], i8 or u8, which stay where they are; a zero point for each output.
  SplitWeights(const std::byte* weights, DType type, std::vector<int> zero_points, std::int64_t depth);

  int parts() const { return parts_; }
  const std::int8_t* outputs(std::int64_t first, std::int64_t count,
                             std::vector<std::int8_t>& room) const override;

 private:
  const std::byte* weights_;
  DType type_;
  std::vector<int> zero_points_;
  std::int64_t depth_;
  int parts_ = 1;
};

}  // namespace pipit::internal
