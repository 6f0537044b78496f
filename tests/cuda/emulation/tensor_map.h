// What the emulated driver puts into a CUtensorMap.
#pragma once

#include <array>
#include <cstdint>

namespace pipit::internal::test::emulation {

constexpr std::uint32_t kIsTensorMap = 0x7E2502A9;

struct TensorMap {
  std::uint32_t mark = kIsTensorMap;
  std::uint8_t im2col = 0, rank = 0, element = 1;
  std::uint8_t swizzle = 0;  ///< bytes that its pattern goes over, 0: none
  std::uint64_t base = 0;
  std::array<std::uint64_t, 4> stride{};  ///< of dimensions from 1 on, in bytes
  std::array<std::uint32_t, 5> extent{};
  std::array<std::uint16_t, 5> box{};  ///< im2col: channels, pixels
  std::array<std::uint8_t, 5> step{};
  std::array<std::int16_t, 3> lower{}, upper{};
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace pipit::internal::test::emulation
