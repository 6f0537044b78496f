// Rows of elements that are stored in 16 bits: the conversions of the vector kernels against those of one element.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/graph/dtype.h"
#include "layers/common/dispatch.h"
#include "layers/cpu/vector/row_kernels.h"
#include "tests/support/random.h"

namespace pipit::internal {
namespace {

template <typename T>
void expect_same_conversions() {
  std::vector<T> all(0x10000);
  for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits] = {static_cast<std::uint16_t>(bits)};
  std::vector<float> wide(all.size());
  widen_row(all.data(), wide.data(), static_cast<std::int64_t>(all.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float expected = to_float(all[i]);
    EXPECT_TRUE(std::isnan(expected)
                    ? std::isnan(wide[i])
                    : std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(expected))
        << i;
  }
  // Rows of every length that registers do not fill, nothing written beyond their end.
  test::Random random;
  for (std::int64_t count = 0; count < 70; ++count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& v : x) v = std::bit_cast<float>(static_cast<std::uint32_t>(random.integer(0, 0xFFFFFFFF)));
    std::vector<T> y(x.size() + 2, T{0x1234});
    narrow_row(x.data(), DTypeOf<T>::value, y.data(), 1, count);
    EXPECT_EQ(y.front().bits, 0x1234);
    EXPECT_EQ(y.back().bits, 0x1234);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T expected = to_stored<T>(x[i]);
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(to_float(y[i + 1])));
      } else {
        EXPECT_EQ(y[i + 1].bits, expected.bits) << x[i];
      }
    }
    std::vector<float> back(x.size() + 1, 7.0F);
    widen_row(DTypeOf<T>::value, y.data(), 1, back.data(), count);
    EXPECT_EQ(back.back(), 7.0F);
  }
}

TEST(StoredRows, OfHalves) {
  expect_same_conversions<Half>();
}

TEST(StoredRows, OfBfloat16) {
  expect_same_conversions<BFloat16>();
}

}  // namespace
}  // namespace pipit::internal
