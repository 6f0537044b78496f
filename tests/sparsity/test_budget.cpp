#include "sparsity/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit {
namespace {

using ::testing::ElementsAre;

TEST(Budget, StepsInTheOrderOfCostPerMillisecond) {
  // Layer 0: 1 and 2 cost per ms; option 1 of layer 1 lies above the hull; option 2 costs 1.5 per ms.
  const std::vector<Selection> all =
      selections({{{10, 0}, {8, 2}, {7, 4}}, {{6, 0}, {5, 3}, {2, 6}}, {{1, 0}, {1.5, 1}}});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_THAT(all[0].chosen, ElementsAre(0, 0, 0));
  EXPECT_THAT(all[1].chosen, ElementsAre(1, 0, 0));
  EXPECT_THAT(all[2].chosen, ElementsAre(1, 2, 0));
  EXPECT_THAT(all[3].chosen, ElementsAre(2, 2, 0));
  EXPECT_DOUBLE_EQ(all[3].ms, 10);
  EXPECT_DOUBLE_EQ(all[3].cost, 10);
  EXPECT_EQ(&within(all, 17), &all[0]);
  EXPECT_EQ(&within(all, 12), &all[2]);
  EXPECT_EQ(&within(all, 1), &all[3]);
  EXPECT_THROW(selections({{}}), Error);
}

TEST(Budget, FasterForNothingIsTaken) {
  const std::vector<Selection> all = selections({{{10, 0}, {9, 0}, {8, 0}}});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].ms, 8);
}

// No other choice is as fast and costs less.
TEST(Budget, EverySelectionIsOptimal) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::vector<Option>> layers(4);
    for (std::vector<Option>& options : layers) {
      options.push_back({1 + uniform(random), 0});
      for (int i = 0; i < 3; ++i) options.push_back({uniform(random) * options[0].ms, uniform(random)});
    }
    for (const Selection& selection : selections(layers)) {
      for (std::size_t code = 0; code < 256; ++code) {
        double ms = 0, cost = 0;
        for (std::size_t l = 0; l < 4; ++l) {
          ms += layers[l][code >> 2 * l & 3U].ms;
          cost += layers[l][code >> 2 * l & 3U].cost;
        }
        ASSERT_FALSE(ms <= selection.ms + 1e-12 && cost < selection.cost - 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace pipit
