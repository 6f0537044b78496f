// Weights and biases as integers: what they stand for, and that no bias leaves its range.
#include "quant/int8_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>
#include <span>

#include "engine/base/error.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(QuantizeWeights, BiasesOfAlmostDeadChannelsLeaveTheReaderHalfOfInt32) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-45, 2);
  std::uniform_real_distribution<float> one(-1, 1);
  constexpr std::int64_t kOutputs = 64;
  for (int round = 0; round < 20; ++round) {
    // Channels of all magnitudes, batch normalization's running variance being what it is; denormal numbers and zeros
    // too.
    std::vector<float> weights(kOutputs * 9);
    std::vector<float> bias(kOutputs);
    for (std::size_t o = 0; o < bias.size(); ++o) {
      const float magnitude = std::pow(10.0F, exponent(random));
      for (std::size_t i = 0; i < 9; ++i) weights[o * 9 + i] = magnitude * one(random);
      bias[o] = 5 * one(random);
    }
    const float input_scale = std::pow(10.0F, 5 * one(random));
    const QuantizedWeights q =
        quantize_weights(Shape{kOutputs, 1, 3, 3}, weights, bias, input_scale, round % 2 == 0);
    for (std::size_t o = 0; o < bias.size(); ++o) {
      SCOPED_TRACE(testing::Message() << "bias " << bias[o] << ", input scale " << input_scale
                                      << ", weight scale " << q.scales[o]);
      const float unit = input_scale * q.scales[o];
      ASSERT_TRUE(std::isnormal(unit));
      const std::int32_t b = q.bias.values<std::int32_t>()[o];
      ASSERT_LE(std::abs(b), (1 << 29) + 64);  // the scale is rounded to 24 bits
      ASSERT_NEAR(b * static_cast<double>(unit), bias[o], 0.51 * unit + 1e-6 * std::abs(bias[o]));
      // A weight is off by half a step at most, and a step is not coarser than the bias's 2^29th part asks for.
      for (std::size_t i = o * 9; i < o * 9 + 9; ++i)
        ASSERT_NEAR(q.weights.values<std::int8_t>()[i] * q.scales[o], weights[i], 0.5001 * q.scales[o]);
      float largest = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (round % 2 != 0 || i / 9 == o) largest = std::max(largest, std::abs(weights[i]));
      }
      ASSERT_LE(q.scales[o], 1.001 * std::max({largest / 127.0, std::abs(bias[o]) / (input_scale * 0x1p29),
                                               2.0 * FLT_MIN / input_scale, 2.0 * FLT_MIN}));
    }
  }
}

TEST(QuantizeWeights, AChannelOfZerosHasScaleOne) {
  const std::vector<float> weights{0, 0, 1}, bias{0, 1, 0};
  const QuantizedWeights q = quantize_weights(Shape{3, 1, 1, 1}, weights, bias, 0.5F, true);
  EXPECT_EQ(q.scales[0], 1);
  EXPECT_EQ(q.scales[1], 0x1p-28F);
  EXPECT_THAT(q.bias.values<std::int32_t>(), testing::ElementsAre(0, 1 << 29, 0));
}

TEST(QuantizeWeights, FourBitsHaveTheScaleOfTheLeastError) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1F);
  constexpr std::int64_t kOutputs = 24, kDepth = 40;
  std::vector<float> weights(kOutputs * kDepth);
  for (float& w : weights) w = normal(random);
  const QuantizedWeights q = quantize_weights(Shape{kOutputs, kDepth}, weights, {}, 0.5F, true, 4);
  bool clips = false;
  for (std::size_t o = 0; o < kOutputs; ++o) {
    SCOPED_TRACE(testing::Message() << "output " << o);
    const auto row = std::span<const float>(weights).subspan(o * kDepth, kDepth);
    const auto integers = q.weights.values<std::int8_t>().subspan(o * kDepth, kDepth);
    const auto error_with = [&](double scale) {
      double error = 0;
      for (const float w : row) {
        const double e = w - scale * std::clamp(std::nearbyint(w / scale), -8.0, 7.0);
        error += e * e;
      }
      return error;
    };
    double error = 0, clipless = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      ASSERT_THAT(integers[i], testing::AllOf(testing::Ge(-8), testing::Le(7)));
      const double e = row[i] - static_cast<double>(q.scales[o]) * integers[i];
      error += e * e;
      clipless = std::max(clipless, row[i] < 0 ? row[i] / -8.0 : row[i] / 7.0);
    }
    // f32 quotients may round the other way at a tie, which changes no error by more than that.
    for (int step = 0; step <= 8; ++step) ASSERT_LE(error, 1.0001 * error_with(clipless * (1 - 0.05 * step)));
    clips = clips || q.scales[o] < 0.99 * clipless;
  }
  EXPECT_TRUE(clips);
}

TEST(QuantizeWeights, RefusesWhatNoScaleHolds) {
  const std::vector<float> weight{1}, bias{3e38F}, infinite{INFINITY};
  EXPECT_THAT(
      [&] {
        quantize_weights(Shape{1, 1, 1, 1}, weight, bias, 1e-30F, true);
      },
      ThrowsMessage<Error>(HasSubstr("a bias of 3e+38 is beyond int32")));
  EXPECT_THAT(
      [&] {
        quantize_weights(Shape{1, 1, 1, 1}, infinite, {}, 1, true);
      },
      ThrowsMessage<Error>(HasSubstr("a weight or bias is inf")));
}

}  // namespace
}  // namespace pipit::internal
