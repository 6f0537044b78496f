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

SplitWeights::SplitWeights(const std::byte* weights, DType type, std::span<const int> zero_points,
                           std::int64_t depth) {
  const std::int64_t outputs = std::ssize(zero_points);
  const auto zero_point = [&](std::int64_t o) { return zero_points[static_cast<std::size_t>(o)]; };
  for (std::int64_t i = 0; i < outputs * depth; ++i)
    parts = std::max(parts, parts_of(byte_at(weights, type, i) - zero_point(i / depth)));
  values.resize(static_cast<std::size_t>(outputs * parts * depth));
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t k = 0; k < depth; ++k) {
      int left = byte_at(weights, type, o * depth + k) - zero_point(o);
      for (int part = 0; part < parts; ++part) {
        const int value = std::clamp(left, -128, 127);
        values[static_cast<std::size_t>((o * parts + part) * depth + k)] = static_cast<std::int8_t>(value);
        left -= value;
      }
    }
  }
}

}  // namespace pipit::internal
