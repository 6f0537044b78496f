#include "engine/base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

TEST(Statistics, QuantileInterpolatesBetweenRanks) {
  const std::vector<double> values = {30, 10, 40, 20};  // ranks 0..3 are 10, 20, 30, 40
  EXPECT_DOUBLE_EQ(quantile(values, 0), 10);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 37);  // rank 2.7
  EXPECT_DOUBLE_EQ(quantile({7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
}

TEST(Statistics, QuantilesOfManyDoNotDependOnTheirOrder) {
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  for (int p = 0; p <= 100; ++p) EXPECT_NEAR(quantile(values, p / 100.0), p, 1e-9);
}

TEST(Statistics, IntervalsOfMedians) {
  // For 10 values, P(at most 1 below the median) = 11/1024 and P(at most 2) = 56/1024.
  std::vector<double> values = {7, 2, 10, 4, 1, 9, 5, 3, 8, 6};
  MedianInterval interval = median_interval(values, 0.95);
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.median, 5.5);
  EXPECT_EQ(interval.high, 9);
  interval = median_interval(values, 0.88);
  EXPECT_EQ(interval.low, 3);
  EXPECT_EQ(interval.high, 8);
  interval = median_interval({3, 1, 2}, 0.95);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 3);
  EXPECT_EQ(median_interval({4}, 0.5).low, 4);
  EXPECT_THROW(median_interval({}, 0.95), Error);
  EXPECT_THROW(median_interval({1}, 1), Error);
}

TEST(Statistics, IntervalsOfMediansHoldThem) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::exponential_distribution<double> draw;  // its median is ln 2
  for (const std::size_t n : {6U, 25U, 400U, 3000U}) {
    constexpr int kTrials = 400;
    int held = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> values(n);
      for (double& value : values) value = draw(random);
      const MedianInterval interval = median_interval(std::move(values), 0.9);
      held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high ? 1 : 0;
    }
    // 90 % or more; 4.5 standard deviations of the binomial number below that
    EXPECT_GT(held, 0.9 * kTrials - 4.5 * std::sqrt(0.09 * kTrials)) << n;
  }
}

// A third of all runs meet other work that makes them five times as long. Quartiles of the two lists may fall on
// different sides of the gap, which reads as 0.24 or 6 times as fast; pairs of runs do not.
TEST(Statistics, SpikesDoNotMoveTheMedianOfRatios) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::bernoulli_distribution busy(0.3);
  std::vector<double> ratios;
  for (int turn = 0; turn < 200; ++turn)
    ratios.push_back((busy(random) ? 6.0 : 1.2) / (busy(random) ? 5.0 : 1.0));
  const MedianInterval interval = median_interval(ratios, 0.95);
  EXPECT_DOUBLE_EQ(interval.median, 1.2);
  EXPECT_DOUBLE_EQ(interval.low, 1.2);
  EXPECT_DOUBLE_EQ(interval.high, 1.2);
}

TEST(Statistics, Summary) {
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  const Summary summary = summarize(values);
  EXPECT_EQ(summary.count, 8U);
  EXPECT_DOUBLE_EQ(summary.mean, 5);
  EXPECT_DOUBLE_EQ(summary.median, 4.5);
  EXPECT_DOUBLE_EQ(summary.p90, 7.6);   // rank 6.3
  EXPECT_DOUBLE_EQ(summary.p99, 8.86);  // rank 6.93
  EXPECT_DOUBLE_EQ(summary.cv, std::sqrt(32.0 / 7) / 5);
  EXPECT_EQ(summarize(std::vector<double>{3}).cv, 0);
}

TEST(Statistics, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile({1, 2}, 1.01), Error);
  EXPECT_THROW(quantile({1, 2}, std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(summarize({}), Error);
}

}  // namespace
}  // namespace pipit::internal
