// Division by numbers that are the same for a whole launch.
#pragma once

#include <concepts>
#include <cstdint>

#include "layers/cuda/device/host_device.h"

namespace pipit::cuda {

/// Division of 0 <= n < 2^31 by 1 <= value < 2^31 without a divide instruction: a multiplication, an addition and a
/// shift (Granlund & Montgomery, Division by Invariant Integers using Multiplication, 1994).
struct Divisor {
  std::uint32_t value = 1;
  std::uint32_t factor = 1;
  std::uint32_t shift = 0;

  Divisor() = default;
  explicit Divisor(std::integral auto divisor) : value(static_cast<std::uint32_t>(divisor)) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    factor = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - value) << 32) / value + 1);
  }
  template <std::integral T>
  PIPIT_HOST_DEVICE T divide(T n) const {
    const auto dividend = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{dividend} * factor) >> 32);
    return static_cast<T>((high + dividend) >> shift);
  }
};

}  // namespace pipit::cuda
