// Weights with zeros as pruning leaves them, for the tests of convolutions that leave them out.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine/graph/tensor.h"

namespace pipit::internal::test {

/// weights [outputs, channels, ...] (f32 or i8, row-major) with zeros: every 32 outputs keep all of their blocks of
/// `block` channels of one tap, about half of them, one block, one weight, or nothing.
inline std::shared_ptr<const Tensor> pruned_weights(const Tensor& weights, std::int64_t block,
                                                    std::mt19937& random) {
  constexpr std::int64_t kPanel = 32;
  enum Way { all, half, one_block, one_weight, nothing };
  const std::int64_t outputs = weights.shape()[0], channels = weights.shape()[1];
  const std::int64_t taps = weights.shape().elements() / (outputs * channels);
  const std::int64_t per_tap = (channels + block - 1) / block;
  const auto pick = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  Tensor result(weights.desc());
  const auto zero = [&](auto from, auto to) {
    for (std::int64_t first = 0; first < outputs; first += kPanel) {
      const auto way = static_cast<Way>(pick(5));
      std::vector<bool> kept(static_cast<std::size_t>(taps * per_tap), way == all);
      for (std::size_t b = 0; way == half && b < kept.size(); ++b) kept[b] = pick(2) == 1;
      if (way == one_block) kept[static_cast<std::size_t>(pick(taps * per_tap))] = true;
      const std::int64_t end = std::min(first + kPanel, outputs);
      const std::int64_t lone = (first + pick(end - first)) * channels * taps + pick(channels * taps);
      for (std::int64_t i = first * channels * taps; i < end * channels * taps; ++i) {
        const std::int64_t place = i % taps * per_tap + i / taps % channels / block;
        const bool live = kept[static_cast<std::size_t>(place)] || (way == one_weight && i == lone);
        const auto at = static_cast<std::size_t>(i);
        to[at] = live ? from[at] : from[at] - from[at];
      }
    }
  };
  if (weights.desc().dtype == DType::i8) {
    zero(weights.values<std::int8_t>(), result.values<std::int8_t>());
  } else {
    zero(weights.values<float>(), result.values<float>());
  }
  return std::make_shared<const Tensor>(std::move(result));
}

}  // namespace pipit::internal::test
