// The numbers that show how a kernel rounds: that they distinguish wrong rounding. Needs no GPU.
#include "layers/cuda/conv/library/library.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pipit::internal::cuda {
namespace {

using Probe = RequantizationProbe;

// Channels on which `wrong` ends at another integer than the specification.
template <typename Wrong>
std::size_t differing(const Probe& probe, const StepBounds& bounds, Wrong wrong) {
  std::size_t count = 0;
  for (std::size_t c = 0; c < probe.bias.size(); ++c)
    count += wrong(probe, c) != requantize(probe.value[c], bounds, 0) ? 1 : 0;
  return count;
}

float residual_product(const Probe& probe, std::size_t c) {
  volatile float product = static_cast<float>(probe.residual[c]) * Probe::kResidualScale;
  return product;
}
float bias_product(const Probe& probe, std::size_t c) {
  volatile float product = static_cast<float>(probe.bias[c]) * probe.multiplier[c];
  return product;
}

TEST(RequantizationProbe, ShowsContractions) {
  for (const StepBounds bounds : {StepBounds{-127, 127}, StepBounds{0, 127}, StepBounds{-3, 40.5F}}) {
    const Probe probe = requantization_probe(64, true, bounds);
    ASSERT_EQ(probe.value.size(), 64U);
    for (std::size_t c = 0; c < 64; ++c)
      EXPECT_EQ(probe.value[c], bias_product(probe, c) + residual_product(probe, c)) << c;
    EXPECT_GE(differing(probe, bounds,
                        [&](const Probe& p, std::size_t c) {
                          return requantize(std::fma(static_cast<float>(p.bias[c]), p.multiplier[c],
                                                     residual_product(p, c)),
                                            bounds, 0);
                        }),
              12U);
    EXPECT_GE(differing(probe, bounds,
                        [&](const Probe& p, std::size_t c) {
                          return requantize(std::fma(static_cast<float>(p.residual[c]), Probe::kResidualScale,
                                                     bias_product(p, c)),
                                            bounds, 0);
                        }),
              12U);
  }
}

TEST(RequantizationProbe, ShowsRoundingAndBounds) {
  const StepBounds bounds{-127, 127};
  const Probe probe = requantization_probe(256, false, bounds);
  const auto clamped = [&](float v) { return std::min(std::max(v, bounds.low), bounds.high); };
  // Ties away from zero, truncation, the type's own bound of -128.
  EXPECT_GE(differing(probe, bounds,
                      [&](const Probe& p, std::size_t c) {
                        return static_cast<int>(std::round(clamped(p.value[c])));
                      }),
            10U);
  EXPECT_GE(differing(probe, bounds,
                      [&](const Probe& p, std::size_t c) { return static_cast<int>(clamped(p.value[c])); }),
            60U);
  EXPECT_GE(differing(probe, bounds,
                      [](const Probe& p, std::size_t c) {
                        return requantize(p.value[c], {-128, 127}, 0);
                      }),
            10U);
  // Sums that are rounded to f32 only with the product.
  EXPECT_GE(differing(probe, bounds,
                      [&](const Probe& p, std::size_t c) {
                        return requantize(
                            static_cast<float>(static_cast<double>(p.bias[c]) * p.multiplier[c]), bounds, 0);
                      }),
            4U);
}

TEST(RequantizationProbe, BoundsWithoutRoomForATie) {
  const StepBounds bounds{0, 0.25F};
  const Probe probe = requantization_probe(8, true, bounds);
  EXPECT_EQ(probe.value.size(), 8U);
  for (const float value : probe.value) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace pipit::internal::cuda
