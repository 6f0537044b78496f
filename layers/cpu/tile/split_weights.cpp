#include "layers/cpu/tile/split_weights.h"

#include <algorithm>

#include "layers/ops/dynamic_int8.h"

namespace pipit::internal {

namespace {

// Parts of s8 that add up to it.
int parts_of(int steps) {
  return steps >= -128 && steps <= 127 ? 1 : steps <= 254 ? 2 : 3;
}

}  // namespace

SplitWeights::SplitWeights(const std::byte* weights, DType type, std::vector<int> zero_points,
                           std::int64_t depth)
    : weights_(weights), type_(type), zero_points_(std::move(zero_points)), depth_(depth) {
  std::int64_t at = 0;
  for (const int zero_point : zero_points_) {
    int low = 255, high = -128;
    for (const std::int64_t stop = at + depth_; at < stop; ++at) {
      const int value = byte_at(weights_, type_, at);
      low = std::min(low, value);
      high = std::max(high, value);
    }
    parts_ = std::max({parts_, parts_of(low - zero_point), parts_of(high - zero_point)});
  }
}

const std::int8_t* SplitWeights::outputs(std::int64_t first, std::int64_t count,
                                         std::vector<std::int8_t>& room) const {
  room.resize(static_cast<std::size_t>(count * parts_ * depth_));
  std::int8_t* to = room.data();
  for (std::int64_t o = first; o < first + count; ++o, to += parts_ * depth_) {
    const int zero_point = zero_points_[static_cast<std::size_t>(o)];
    for (std::int64_t k = 0; k < depth_; ++k) {
      int left = byte_at(weights_, type_, o * depth_ + k) - zero_point;
      for (int part = 0; part < parts_; ++part) {
        const int value = std::clamp(left, -128, 127);
        to[part * depth_ + k] = static_cast<std::int8_t>(value);
        left -= value;
      }
    }
  }
  return room.data();
}

}  // namespace pipit::internal
