// simd<>: a loop computes the same bits under every instruction set.
#include "engine/platform/simd.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <vector>

#include "layers/cpu/vector/vector_math.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

// A product and a sum that an FMA would round once, a division, a root, a comparison, an exponential function.
PIPIT_INLINE inline void loop(const float* x, float scale, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i] * scale + 0.1F;
    y[i] = (v < 0 ? std::sqrt(-v) : v / 3) + vector_math::exp(x[i]);
  }
}

PIPIT_INLINE inline std::int64_t count_negative(const float* x, std::int64_t count) {
  std::int64_t negative = 0;
  for (std::int64_t i = 0; i < count; ++i) negative += x[i] < 0 ? 1 : 0;
  return negative;
}

TEST(Simd, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(test::test_seed());
  std::uniform_real_distribution<float> values(-10, 10);
  std::vector<float> x(1003);
  for (float& v : x) v = values(random);
  const auto count = std::ssize(x);
  std::vector<float> expected(x.size(), NAN);
  loop(x.data(), 1.7F, expected.data(), count);

  std::vector<float> y(x.size(), NAN);
  simd<loop>(x.data(), 1.7F, y.data(), count);
  EXPECT_EQ(y, expected);
  EXPECT_EQ(simd<count_negative>(x.data(), count), count_negative(x.data(), count));
#if PIPIT_ISA_X86
  using Dispatched = detail::Simd<loop, loop>;
  if (isa_available(Isa::avx2)) {
    std::fill(y.begin(), y.end(), NAN);
    Dispatched::avx2(x.data(), 1.7F, y.data(), count);
    EXPECT_EQ(y, expected) << "avx2";
  }
  if (isa_available(Isa::avx512)) {
    std::fill(y.begin(), y.end(), NAN);
    Dispatched::avx512(x.data(), 1.7F, y.data(), count);
    EXPECT_EQ(y, expected) << "avx512";
  }
#endif
}

PIPIT_INLINE inline int eight_floats() {
  return 8;
}
PIPIT_INLINE inline int sixteen_floats() {
  return 16;
}

TEST(Simd, TheTwinIsForAvx512) {
  const auto lanes = simd<eight_floats, sixteen_floats>;
  EXPECT_EQ(lanes(), chosen_isa() >= Isa::avx512 ? 16 : 8);
}

}  // namespace
}  // namespace pipit::internal
