#include "quant/mixed_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/base/error.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using ::testing::ElementsAre;

// Margins of a classifier that noise shifts by a little on average: the expected drop agrees with the measured one of
// very many images, and varies less over few.
TEST(MixedSearch, ExpectedDropMeansTheSameAndVariesLess) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> spread(2, 4), noise(-0.05F, 0.3F);
  constexpr int kImages = 250, kSamples = 800;
  double measured_sum = 0, measured_squares = 0, expected_sum = 0, expected_squares = 0, claimed = 0;
  for (int s = 0; s < kSamples; ++s) {
    std::vector<float> fp32(kImages), int8(kImages);
    PairedAnswers answers{kImages, 0, 0};
    for (int i = 0; i < kImages; ++i) {
      fp32[i] = spread(random);
      int8[i] = fp32[i] + noise(random);
      answers.only_first += fp32[i] > 0 && int8[i] <= 0 ? 1 : 0;
      answers.only_second += fp32[i] <= 0 && int8[i] > 0 ? 1 : 0;
    }
    const DropEstimate expected = expected_drop(fp32, int8, margin_width(fp32, int8));
    measured_sum += paired_drop(answers);
    measured_squares += paired_drop(answers) * paired_drop(answers);
    expected_sum += expected.mean;
    expected_squares += expected.mean * expected.mean;
    claimed += expected.standard_error;
  }
  const auto deviation = [](double sum, double squares) {
    return std::sqrt(squares / kSamples - sum * sum / kSamples / kSamples);
  };
  const double of_measured = deviation(measured_sum, measured_squares);
  const double of_expected = deviation(expected_sum, expected_squares);
  EXPECT_LT(of_expected, of_measured / 2);
  EXPECT_NEAR(claimed / kSamples / of_expected, 1, 0.2);
  // Density of the margins at 0 times the mean change is 0.0044; both means stray by their deviation over sqrt(800).
  EXPECT_NEAR(expected_sum / kSamples, measured_sum / kSamples, 6 * of_measured / std::sqrt(kSamples));
  EXPECT_GT(expected_sum / kSamples, 0.003);
}

TEST(MixedSearch, ExpectedDropOfEqualMarginsIsNone) {
  const std::vector<float> margins{-3, 0, 5};
  const DropEstimate none = expected_drop(margins, margins, margin_width(margins, margins));
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.standard_error, 0);
  EXPECT_THROW(expected_drop(margins, std::vector<float>{1}, 1), Error);
  EXPECT_THROW(expected_drop({}, {}, 1), Error);
  EXPECT_THROW(expected_drop(margins, margins, 0), Error);
}

TEST(MixedSearch, KeepsWhatCostsNothingFirstThenByDensity) {
  EXPECT_THAT(keeping_order({{"useless", -1, 0.1},
                             {"dear", 8, 4},
                             {"cheap", 3, 1},
                             {"free", 1, 0},
                             {"faster", 2, -0.5},
                             {"no use", 0, -1}}),
              ElementsAre("faster", "free", "cheap", "dear", "useless", "no use"));
}

MixedStep step(int kept, double ms, double drop, double error = 0) {
  MixedStep s;
  s.kept = kept;
  s.ms = ms;
  s.drop = {drop, error};
  return s;
}

TEST(MixedSearch, TakesTheFastestStepFromWhichOnAllAreGoodEnough) {
  const std::vector<MixedStep> steps{step(0, 1.0, 0.04), step(1, 1.1, 0.01),   step(2, 1.2, 0.03),
                                     step(3, 1.3, 0.02), step(4, 1.305, 0.01), step(5, 1.25, 0.005),
                                     step(6, 2, 0)};
  EXPECT_EQ(choose_step(steps, 0.05, 0.5), 0);
  EXPECT_EQ(choose_step(steps, 0.02, 0.5), 5);  // step 1 was luck; of 3 to 6 it is the fastest
  EXPECT_EQ(choose_step(steps, 0.03, 0.5), 1);
  EXPECT_EQ(choose_step(steps, 0, 0.5), 6);
  EXPECT_EQ(choose_step(steps, -0.01, 0.5), -1);
  const std::vector<MixedStep> close{step(0, 1.005, 0), step(1, 1.0, 0), step(2, 1.1, 0)};
  EXPECT_EQ(choose_step(close, 0, 0.5), 0);  // within 1 % of the fastest
}

TEST(MixedSearch, MeasuredDropsCanRefuseAStepToo) {
  std::vector<MixedStep> steps{step(0, 1, 0.01), step(1, 2, 0)};
  steps[0].answers = {100, 20, 0};  // expected 1 %, but 20 of 100 answers were lost
  EXPECT_EQ(choose_step(steps, 0.02, 0.5), 1);
  steps[0].answers = {100, 4, 1};
  EXPECT_EQ(choose_step(steps, 0.02, 0.5), 0);
}

// A model whose margins INT8 destroys: nothing is left of the accuracy, and the expected drop says so.
TEST(MixedSearch, ExpectedDropOfADestroyedModelIsLarge) {
  std::mt19937 random(1);
  std::normal_distribution<float> spread(3, 3), noise(-2, 5);
  std::vector<float> fp32(1000), int8(1000);
  double lost = 0;
  for (std::size_t i = 0; i < fp32.size(); ++i) {
    fp32[i] = spread(random);
    int8[i] = noise(random);
    lost += (fp32[i] > 0 ? 1e-3 : 0) - (int8[i] > 0 ? 1e-3 : 0);
  }
  EXPECT_GT(lost, 0.4);
  EXPECT_NEAR(expected_drop(fp32, int8, margin_width(fp32, int8)).mean, lost, 0.05);
}

TEST(MixedSearch, ConfidenceAddsErrors) {
  const std::vector<MixedStep> steps{step(0, 1, 0.01, 0.01), step(1, 2, 0.01, 0.002), step(2, 3, 0)};
  EXPECT_EQ(choose_step(steps, 0.015, 0.5), 0);
  EXPECT_EQ(choose_step(steps, 0.015, 0.95), 1);   // 0.01 + 1.64 * 0.002
  EXPECT_EQ(choose_step(steps, 0.015, 0.999), 2);  // 0.01 + 3.09 * 0.002
  EXPECT_THROW(choose_step(steps, 0.015, 0.4), Error);
}

TEST(MixedSearch, ParetoFront) {
  std::vector<MixedStep> steps{step(0, 1, 0.02), step(1, 2, 0.02), step(2, 1.5, 0.01), step(3, 3, 0.0)};
  mark_pareto(steps);
  EXPECT_TRUE(steps[0].pareto);
  EXPECT_FALSE(steps[1].pareto);
  EXPECT_TRUE(steps[2].pareto);
  EXPECT_TRUE(steps[3].pareto);
}

TEST(MixedSearch, CountsGoFromNoneToAll) {
  for (const int layers : {1, 2, 6, 7, 20, 54, 500}) {
    const std::vector<int> counts = kept_counts(layers);
    EXPECT_EQ(counts.front(), 0);
    EXPECT_EQ(counts.back(), layers);
    EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end(), std::less_equal<>()));
    EXPECT_LE(counts.size(), layers <= 54 ? 20U : 32U);
  }
}

}  // namespace
}  // namespace pipit::internal
