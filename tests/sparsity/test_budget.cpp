#include "sparsity/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
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

TEST(Budget, WhatIsSharedMakesAllFaster) {
  // The shared option saves 5 + 2 ms for 3.5, before the layers' own 4 ms for 3; then the layer saves half as much.
  const std::vector<std::vector<Option>> layers{{{10, 0}, {6, 3}}, {{4, 0}}, {{1, 0}}};
  const std::vector<Selection> all = selections(layers, {{{0, {1, 1, 1}}, {3.5, {0.5, 0.5, 1}}}});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_THAT(all[1].chosen, ElementsAre(0, 0, 0));
  EXPECT_THAT(all[1].shared, ElementsAre(1));
  EXPECT_DOUBLE_EQ(all[1].ms, 8);
  EXPECT_DOUBLE_EQ(all[1].cost, 3.5);
  EXPECT_THAT(all[2].chosen, ElementsAre(1, 0, 0));
  EXPECT_DOUBLE_EQ(all[2].ms, 6);
  EXPECT_DOUBLE_EQ(all[2].cost, 6.5);
  // At 6 it comes second, when there is less to save, and does not come where it saves nothing.
  EXPECT_THAT(selections(layers, {{{0, {1, 1, 1}}, {6, {0.5, 0.5, 1}}}})[1].chosen, ElementsAre(1, 0, 0));
  EXPECT_EQ(selections(layers, {{{0, {1, 1, 1}}, {1, {1, 1.1, 1}}}}).size(), 2U);
  EXPECT_THROW(selections(layers, {{{0, {1, 1}}}}), Error);
  EXPECT_THROW(selections(layers, {{}}), Error);
}

// Layer by layer is cheaper at first (1 for 6 ms each), and then what is shared has little left to save.
TEST(Budget, WhatIsSharedMayHaveToComeFirst) {
  const std::vector<Selection> all =
      selections({{{10, 0}, {4, 1}}, {{10, 0}, {4, 1}}}, {{{0, {1, 1}}, {1.9, {0.45, 0.45}}}});
  const Selection& nine = within(all, 9);
  EXPECT_THAT(nine.chosen, ElementsAre(0, 0));
  EXPECT_THAT(nine.shared, ElementsAre(1));
  EXPECT_DOUBLE_EQ(nine.cost, 1.9);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_GT(all[i].cost, all[i - 1].cost);
    EXPECT_LT(all[i].ms, all[i - 1].ms);
  }
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
}  // namespace pipit::internal
