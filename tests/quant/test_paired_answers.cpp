#include "quant/paired_answers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

TEST(PairedAnswers, CountsWhoAloneIsRight) {
  PairedAnswers answers;
  for (const auto& [first, second] :
       {std::pair{true, true}, {true, false}, {true, false}, {false, true}, {false, false}})
    answers.add(first, second);
  EXPECT_EQ(answers.images, 5);
  EXPECT_EQ(answers.only_first, 2);
  EXPECT_EQ(answers.only_second, 1);
}

// The table of Bonett and Price 2012, p1 = 0.3 and p2 = 0.2 of 100, computed here by their formula with z = 1.96.
TEST(PairedAnswers, IntervalOfPairedAnswers) {
  const PairedAnswers answers{100, 15, 5};
  EXPECT_DOUBLE_EQ(paired_drop(answers), 0.1);
  const double first = 16.0 / 102, second = 6.0 / 102;
  const double half =
      1.959963984540054 * std::sqrt((first + second - (first - second) * (first - second)) / 102);
  EXPECT_NEAR(drop_interval(answers, 0.95).low, first - second - half, 1e-12);
  EXPECT_NEAR(drop_interval(answers, 0.95).high, first - second + half, 1e-12);
  // Answers that never differ still leave a doubt, which shrinks with the number of images.
  EXPECT_GT(drop_interval({100, 0, 0}, 0.95).high, 0.01);
  EXPECT_LT(drop_interval({10'000, 0, 0}, 0.95).high, 0.001);
  EXPECT_THROW(drop_interval({0, 0, 0}, 0.95), Error);
  EXPECT_THROW(drop_interval(answers, 1), Error);
  EXPECT_THROW(paired_drop({}), Error);
}

TEST(PairedAnswers, IntervalsCoverTheTruth) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  int covered = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    PairedAnswers answers{250, 0, 0};
    for (int i = 0; i < 250; ++i) {
      const double u = uniform(random);
      answers.only_first += u < 0.05 ? 1 : 0;
      answers.only_second += u >= 0.05 && u < 0.08 ? 1 : 0;
    }
    const DropInterval interval = drop_interval(answers, 0.95);
    covered += interval.low <= 0.02 && 0.02 <= interval.high ? 1 : 0;
  }
  // 95 % of 2000 is 1900; six standard deviations of a count are 58.
  EXPECT_GT(covered, 1900 - 58);
}

}  // namespace
}  // namespace pipit::internal
