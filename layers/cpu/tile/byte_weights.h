// Weights in s8 as a convolution packs them: some outputs at a time, so that what they are computed from and the packed
// form are all that is in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace pipit::internal {

class ByteWeights {
 public:
  virtual ~ByteWeights() = default;
  /// Outputs [first, first + count), each with all elements of K; in `room`, or where they are.
  virtual const std::int8_t* outputs(std::int64_t first, std::int64_t count,
                                     std::vector<std::int8_t>& room) const = 0;
};

/// [outputs][depth] that lie in memory; not copied.
class WholeByteWeights final : public ByteWeights {
 public:
  WholeByteWeights(const std::int8_t* weights, std::int64_t depth) : weights_(weights), depth_(depth) {}
  const std::int8_t* outputs(std::int64_t first, std::int64_t /*count*/,
                             std::vector<std::int8_t>& /*room*/) const override {
    return weights_ + first * depth_;
  }

 private:
  const std::int8_t* weights_;
  std::int64_t depth_;
};

}  // namespace pipit::internal
