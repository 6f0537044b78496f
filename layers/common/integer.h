// Integer arithmetic that is defined for every operand: sums, differences and products wrap modulo 2^64 (and,
// stored into a narrower type, modulo its range); dividing by zero throws.
#pragma once

#include <cstdint>

#include "engine/base/error.h"

namespace pipit::internal::wrapping {

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t subtract(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
inline std::int64_t absolute(std::int64_t a) {
  return a < 0 ? subtract(0, a) : a;
}

/// Truncates toward zero.
inline std::int64_t divide(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer division of {} by zero", a);
  return b == -1 ? subtract(0, a) : a / b;  // the minimum / -1 does not fit
}

/// The remainder of divide(): has the sign of a, as in C.
inline std::int64_t remainder(std::int64_t a, std::int64_t b) {
  if (b == 0) fail("integer remainder of {} by zero", a);
  return b == -1 ? 0 : a % b;
}

/// The remainder of flooring division: has the sign of b, as in Python.
inline std::int64_t modulo(std::int64_t a, std::int64_t b) {
  const std::int64_t r = remainder(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/// a^b by squaring; a negative exponent truncates 1 / a^-b toward zero.
inline std::int64_t power(std::int64_t a, std::int64_t b) {
  if (b < 0) {
    if (a == 0) fail("integer 0 to the power of {} divides by zero", b);
    if (a == 1) return 1;
    if (a == -1) return b % 2 == 0 ? 1 : -1;
    return 0;
  }
  std::int64_t result = 1;
  for (; b > 0; b /= 2) {
    if (b % 2 == 1) result = multiply(result, a);
    a = multiply(a, a);
  }
  return result;
}

}  // namespace pipit::internal::wrapping
