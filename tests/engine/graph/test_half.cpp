// Elements that are stored in 16 bits.
#include "engine/graph/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/random.h"

namespace pipit::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
class StoredFloat : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(StoredFloat, Types);

TYPED_TEST(StoredFloat, KeepsEveryValueOfItsOwn) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const TypeParam value{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(value);
    const TypeParam back = to_stored<TypeParam>(wide);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(back))) << bits;
    } else {
      EXPECT_EQ(back.bits, value.bits);
    }
  }
}

// Of the neighbours the one that is nearer; of two as near that with an even last bit.
TYPED_TEST(StoredFloat, RoundsToTheNearest) {
  test::Random random;
  for (int i = 0; i < 100'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.integer(0, 0x7F7FFFFF));
    const float value = std::bit_cast<float>(random.coin() ? bits : bits & 0xFFFFF000U);
    const TypeParam stored = to_stored<TypeParam>(value);
    const float got = to_float(stored);
    if (std::isinf(got)) {
      const TypeParam largest{static_cast<std::uint16_t>(stored.bits - 1)};
      const TypeParam before{static_cast<std::uint16_t>(stored.bits - 2)};
      const double step = double{to_float(largest)} - to_float(before);
      EXPECT_GE(value, to_float(largest) + step / 2);
      continue;
    }
    const TypeParam above{static_cast<std::uint16_t>(stored.bits + 1)};
    const double error = std::abs(double{got} - value);
    if (!std::isinf(to_float(above))) {
      EXPECT_LE(error, std::abs(double{to_float(above)} - value)) << value;
    }
    if (stored.bits == 0) continue;
    const TypeParam below{static_cast<std::uint16_t>(stored.bits - 1)};
    const double other = std::abs(double{to_float(below)} - value);
    EXPECT_LE(error, other) << value;
    if (error == other) {
      EXPECT_EQ(stored.bits % 2, 0) << value;
    }
  }
}

TYPED_TEST(StoredFloat, KeepsSignsInfinitiesAndNan) {
  EXPECT_EQ(to_float(to_stored<TypeParam>(kInfinity)), kInfinity);
  EXPECT_EQ(to_float(to_stored<TypeParam>(-kInfinity)), -kInfinity);
  EXPECT_EQ(to_float(to_stored<TypeParam>(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_TRUE(std::signbit(to_float(to_stored<TypeParam>(-0.0F))));
  // A NaN whose upper bits alone would be an infinity, and one that rounding would carry into the sign.
  for (const std::uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU})
    EXPECT_TRUE(std::isnan(to_float(to_stored<TypeParam>(std::bit_cast<float>(bits))))) << bits;
}

}  // namespace
}  // namespace pipit::internal
