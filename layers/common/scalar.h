// One number as an element of any type.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/graph/half.h"
#include "layers/common/dispatch.h"

namespace pipit::internal {

/// `value` as T. Integers: truncated toward zero, saturated at T's range, 0 for NaN. bool: value != 0.
template <typename T>
T saturate_cast(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    // The first doubles beyond the range: T's maximum itself may not be representable, this power of two is.
    constexpr double kLow = static_cast<double>(Limits::min());
    const double high = std::ldexp(1.0, Limits::digits);
    if (std::isnan(value)) return 0;
    if (value <= kLow) return Limits::min();
    if (value >= high) return Limits::max();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

/// The bytes of one element (the first dtype_bytes(type)) that holds saturate_cast of `value`; those of 16 bits are
/// rounded from float.
inline std::array<std::byte, 8> element_bytes(DType type, double value) {
  std::array<std::byte, 8> bytes{};
  if (is_stored_float(type)) {
    with_stored_float(type, [&]<typename T>(std::type_identity<T>) {
      const T stored = to_stored<T>(static_cast<float>(value));
      std::memcpy(bytes.data(), &stored, sizeof stored);
    });
    return bytes;
  }
  with_dtype(type, [&]<typename T>(std::type_identity<T>) {
    const T element = saturate_cast<T>(value);
    std::memcpy(bytes.data(), &element, sizeof element);
  });
  return bytes;
}

}  // namespace pipit::internal
