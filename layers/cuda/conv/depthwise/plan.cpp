#include "layers/cuda/conv/depthwise/plan.h"

namespace pipit::internal::cuda {

std::vector<std::int32_t> pack_depthwise(std::span<const std::int8_t> from, std::size_t channels,
                                         int window) {
  const auto k = static_cast<std::size_t>(window);
  std::vector<std::int32_t> packed(static_cast<std::size_t>(depthwise_parts(window)) * channels);
  const auto put = [&](std::size_t part, std::size_t c, std::size_t byte, std::int8_t weight) {
    std::int32_t& word = packed[part * channels + c];
    word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                     std::uint32_t{static_cast<std::uint8_t>(weight)} << byte * 8);
  };
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t r = 0; r < k; ++r) {
      for (std::size_t column = 0; column < k; ++column) {
        const std::int8_t weight = from[(c * k + r) * k + column];
        if (k == 5 && r == 4) {
          put(k + column, c, c % 4, weight);
        } else if (k == 5) {
          put(column, c, r, weight);
        } else {
          const std::size_t age = k - 1 - r;  // rows newer than this one
          put(age < 4 ? column : k + column, c, 3 - age % 4, weight);
        }
      }
    }
  }
  return packed;
}

}  // namespace pipit::internal::cuda
