#include "sparsity/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

// By hand: probabilities (1/2, 1/2) against (1/4, 3/4) are ln 2 / 2 + ln(2/3) / 2 = ln(4/3) / 2.
TEST(Divergence, OfTwoClasses) {
  const double expected = 0.5 * std::log(4.0 / 3.0);
  const std::vector<float> half{0.5F, 0.5F}, quarter{0.25F, 0.75F};
  EXPECT_NEAR(divergence(quarter, half, 2), expected, 1e-6);
  const std::vector<float> logits{7, 7}, others{-2, -2 + std::log(3.0F)};
  EXPECT_NEAR(divergence(others, logits, 2), expected, 1e-6);
  // The mean over images, one of which agrees.
  EXPECT_NEAR(
      divergence(std::vector<float>{-2, -2 + std::log(3.0F), 1, 4}, std::vector<float>{7, 7, 0, 3}, 2),
      expected / 2, 1e-6);
  // In the other direction it is another one: ln(1/2) / 4 + 3 ln(3/2) / 4.
  EXPECT_NEAR(divergence(half, quarter, 2), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-6);
}

// The reference says what outputs are: images whose outputs happen to be probabilities are still logits when others of
// the same model are none.
TEST(Divergence, OutputsAreProbabilitiesWhereAllOfTheReferenceAre) {
  const std::vector<float> reference{0.5F, 0.5F, 3, 1}, outputs{0.25F, 0.75F, 3, 1};
  const double q = 1 / (1 + std::exp(0.5));  // softmax of (0.25, 0.75)
  EXPECT_NEAR(divergence(outputs, reference, 2), -0.25 * std::log(4 * q * (1 - q)), 1e-6);
}

// One score at a time, yes against no: (1/2, 1/2) against (1/4, 3/4) and (1/4, 3/4) against (1/2, 1/2), added up.
TEST(Divergence, OfIndependentClassesAddsUp) {
  const double expected = 0.5 * std::log(4.0 / 3.0) + 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  const std::vector<float> p{0.5F, 0.25F}, q{0.25F, 0.5F};
  EXPECT_NEAR(divergence(q, p, 2, ScoreKind::sigmoid), expected, 1e-6);
  const std::vector<float> p_logits{0, -std::log(3.0F)}, q_logits{-std::log(3.0F), 0};
  EXPECT_NEAR(divergence(q_logits, p_logits, 2, ScoreKind::sigmoid_logits), expected, 1e-6);
  // The mean over two images of one score each.
  EXPECT_NEAR(divergence(q, p, 1, ScoreKind::sigmoid), expected / 2, 1e-6);
  EXPECT_EQ(divergence(p, p, 1, ScoreKind::sigmoid), 0);
  EXPECT_NEAR(divergence(std::vector<float>{1}, std::vector<float>{0}, 1, ScoreKind::sigmoid), std::log(1e7),
              1e-3);
  EXPECT_NEAR(divergence(std::vector<float>{3000}, std::vector<float>{-3000}, 1, ScoreKind::sigmoid_logits),
              3000, 1e-3);
}

TEST(Divergence, IsFiniteAtTheEnds) {
  EXPECT_NEAR(divergence(std::vector<float>{0, 1}, std::vector<float>{1, 0}, 2), std::log(1e7), 1e-3);
  EXPECT_NEAR(divergence(std::vector<float>{-3000, 3000}, std::vector<float>{3000, -3000}, 2), 6000, 1e-3);
}

// Against the definition, in plain sums without any shift.
TEST(Divergence, OfRandomLogits) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  for (const std::size_t classes : {std::size_t{1}, std::size_t{3}, std::size_t{17}}) {
    const std::size_t images = 5;
    std::vector<float> p, q;
    for (std::size_t i = 0; i < images * classes; ++i) {
      p.push_back(normal(random));
      q.push_back(normal(random));
    }
    double expected = 0;
    for (std::size_t n = 0; n < images; ++n) {
      double sum_p = 0, sum_q = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum_p += std::exp(static_cast<double>(p[n * classes + c]));
        sum_q += std::exp(static_cast<double>(q[n * classes + c]));
      }
      for (std::size_t c = 0; c < classes; ++c) {
        const double a = std::exp(static_cast<double>(p[n * classes + c])) / sum_p;
        const double b = std::exp(static_cast<double>(q[n * classes + c])) / sum_q;
        expected += a * std::log(a / b) / static_cast<double>(images);
      }
    }
    EXPECT_NEAR(divergence(q, p, classes), expected, 1e-9 * (1 + expected)) << classes;
    EXPECT_EQ(divergence(p, p, classes), 0);
  }
}

TEST(Divergence, RefusesOtherSizes) {
  const std::vector<float> six(6, 1);
  EXPECT_THROW(divergence(six, std::vector<float>(4, 1), 2), Error);
  EXPECT_THROW(divergence(six, six, 4), Error);
  EXPECT_THROW(divergence(six, six, 0), Error);
  EXPECT_THROW(divergence({}, {}, 2), Error);
}

}  // namespace
}  // namespace pipit::internal
