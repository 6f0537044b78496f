#include "engine/base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"

namespace pipit {
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
}  // namespace pipit
