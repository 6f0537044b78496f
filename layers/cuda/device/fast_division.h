// What kernels and host code share: functions, and division by numbers that are the same for a whole launch.
#pragma once

#include <concepts>
#include <cstdint>

#ifdef __CUDACC__
#define PIPIT_HOST_DEVICE __host__ __device__
#else
#define PIPIT_HOST_DEVICE
#endif

namespace pipit::internal::cuda {

/// Division of 0 <= n < 2^31 by 1 <= value < 2^31 without a divide instruction: multiplication by the rounded-up
/// reciprocal (Granlund & Montgomery, Division by Invariant Integers using Multiplication, 1994).
struct Divisor {
  std::uint32_t value = 1;
  std::uint32_t factor = 0x80000001U;
  int shift = 31;

  Divisor() = default;
  explicit Divisor(std::integral auto divisor) : value(static_cast<std::uint32_t>(divisor)) {
    int bits = 0;  // smallest with 2^bits >= value
    while ((std::uint64_t{1} << bits) < value) ++bits;
    shift = 31 + bits;
    factor = static_cast<std::uint32_t>((std::uint64_t{1} << shift) / value + 1);
  }
  template <std::integral T>
  PIPIT_HOST_DEVICE T divide(T n) const {
    return static_cast<T>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * factor >> shift);
  }
};

}  // namespace pipit::internal::cuda
