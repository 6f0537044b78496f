// The weights of INT8 depthwise convolutions in the order in which their kernel reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pipit::cuda {

/// Weights [channels, 1, window, window] as QDepthwiseArgs has them.
std::vector<std::int32_t> pack_depthwise(std::span<const std::int8_t> from, std::size_t channels, int window);

}  // namespace pipit::cuda
