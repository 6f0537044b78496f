// Divisions by numbers that are the same for a whole launch.
#pragma once

namespace pipit::cuda {

/// Floor division of n < 2^31 by a divisor known before the launch: a multiplication and a shift (Granlund &
/// Montgomery 1994).
struct Divider {
  unsigned divisor = 1, magic = 1, shift = 0;

  Divider() = default;
  explicit Divider(unsigned d) : divisor(d) {
    while ((1ULL << shift) < d) ++shift;
    magic = static_cast<unsigned>((((1ULL << shift) - d) << 32) / d + 1);
  }
  __device__ unsigned divide(unsigned n) const { return (__umulhi(n, magic) + n) >> shift; }
};

}  // namespace pipit::cuda
