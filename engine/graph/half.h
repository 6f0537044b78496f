// IEEE binary16 and bfloat16 as storage: arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace pipit::internal {

struct Half {
  std::uint16_t bits = 0;
};

/// Rounds to nearest, ties to even; overflow becomes infinity, NaN stays NaN.
constexpr Half to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (magnitude >= 0x477FF000U)
    return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // 65520 rounds to infinity
  if (magnitude < 0x38800000U) {
    // Subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in the low mantissa bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U))};
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13))};
}

constexpr float to_float(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = half.bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

/// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Rounds to nearest, ties to even; overflow becomes infinity, NaN stays NaN.
constexpr BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  if ((bits & 0x7FFFFFFFU) > kInfinity) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
}

constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

/// `value` as Half or BFloat16.
template <typename T>
constexpr T to_stored(float value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(value);
  } else {
    return to_bfloat16(value);
  }
}

}  // namespace pipit::internal
