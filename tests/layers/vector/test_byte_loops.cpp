#include "layers/cpu/vector/byte_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

// Quotients at and beside the middle between two integers, where a wrong bit is another integer, beyond the bounds, at
// random and not finite, for scales of all sizes.
TEST(QuantizeSpan, RoundsTheQuotientAsTheSpecificationDoes) {
  std::mt19937 random(test::test_seed());
  const auto integer = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 400; ++round) {
    const int size = round % 4 == 0 ? integer(-120, 100) : integer(-12, 3);
    const float scale = std::ldexp(std::uniform_real_distribution<float>(0.5F, 1)(random), size);
    const bool is_signed = integer(0, 1) == 1;
    const Quantization y{scale, is_signed ? integer(-128, 127) : integer(0, 255),
                         is_signed ? DType::i8 : DType::u8, false};
    std::vector<float> x{INFINITY, -INFINITY, NAN, 0, -0.0F, 3e38F, -3e38F, 1e-45F, -1e-40F};
    for (int i = integer(1, 300); i > 0; --i) {
      const double middle = integer(-300, 300) + (integer(0, 1) == 1 ? 0.5 : 0);
      auto value = static_cast<float>(middle * static_cast<double>(scale));
      for (int steps = integer(-2, 2); steps != 0; steps += steps > 0 ? -1 : 1)
        value = std::nextafter(value, steps > 0 ? INFINITY : -INFINITY);
      x.push_back(value);
    }
    const ByteTarget target(y);
    std::vector<std::byte> bytes(x.size() + 1, std::byte{0xA5});
    quantize_span(x.data(), scale, target, bytes.data(), std::ssize(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bytes[i], static_cast<std::byte>(requantize(x[i] / scale, target.bounds, target.zero_point)))
          << x[i] << " / " << scale << ", zero point " << y.zero_point << ", seed " << test::test_seed();
    }
    ASSERT_EQ(bytes.back(), std::byte{0xA5});
  }
}

}  // namespace
}  // namespace pipit::internal
