// Paths of single outputs that keep as many weights of neighbouring channels as the outputs beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "sparsity/eliminate.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

TEST(BalancePaths, OutputsOfAPanelLoseAsManyOfABlock) {
  std::mt19937_64 random(test::test_seed());
  constexpr int kTaps = 3;
  constexpr int kChannels = 20;  // a block of 16 and one of 4
  constexpr int kOutputs = 37;   // two panels of 16 and one of 5
  constexpr int kPanel = 16;
  constexpr int kNeighbours = 16;
  std::vector<Elimination> paths(kOutputs);
  for (Elimination& path : paths) {
    path.order.resize(kTaps * kChannels);
    for (int g = 0; g < kTaps * kChannels; ++g) path.order[static_cast<std::size_t>(g)] = g;
    std::shuffle(path.order.begin(), path.order.end(), random);
    for (std::size_t i = 0; i < path.order.size(); ++i)
      path.loss.push_back(std::uniform_real_distribution<double>(0, 1)(random));
  }
  const std::vector<PanelStep> steps = balance_paths(paths, kChannels, kPanel, kNeighbours);
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kOutputs * kTaps * kChannels));
  const auto block_of = [](int group) { return group / kChannels * 2 + group % kChannels / kNeighbours; };
  std::set<std::pair<int, int>> seen;
  std::map<std::tuple<int, int, int>, int> fallen;  // of (panel, block, output)
  std::map<std::pair<int, int>, std::vector<int>>
      of_output;  // (output, block): groups in the order in which they fall
  for (const PanelStep& step : steps) {
    ASSERT_TRUE(seen.insert({step.panel, step.group}).second);
    const int panel = step.panel / kPanel;
    const int block = block_of(step.group);
    of_output[{step.panel, block}].push_back(step.group);
    ++fallen[{panel, block, step.panel}];
    int least = 1 << 30;
    int most = 0;
    for (int o = panel * kPanel; o < std::min(kOutputs, (panel + 1) * kPanel); ++o) {
      const auto found = fallen.find({panel, block, o});
      const int count = found == fallen.end() ? 0 : found->second;
      least = std::min(least, count);
      most = std::max(most, count);
    }
    ASSERT_LE(most - least, 1) << "seed " << test::test_seed();
    ASSERT_EQ(step.loss, paths[static_cast<std::size_t>(step.panel)].loss[static_cast<std::size_t>(
                             std::find(paths[static_cast<std::size_t>(step.panel)].order.begin(),
                                       paths[static_cast<std::size_t>(step.panel)].order.end(), step.group) -
                             paths[static_cast<std::size_t>(step.panel)].order.begin())]);
  }
  // What falls of a block in an output falls in the order of its own path.
  for (const auto& [place, groups] : of_output) {
    std::vector<int> own;
    for (const int group : paths[static_cast<std::size_t>(place.first)].order) {
      if (block_of(group) == place.second) own.push_back(group);
    }
    EXPECT_EQ(groups, own);
  }
}

// Paths end before the last groups: what one output keeps, the others keep as many of.
TEST(BalancePaths, EndsWithTheFirstPathOfAPanel) {
  std::vector<Elimination> paths(3);
  paths[0] = {{0, 1, 2, 3}, {1, 2, 3, 4}};
  paths[1] = {{3, 1}, {1, 2}};
  paths[2] = {{2, 0, 1}, {1, 2, 3}};
  std::map<int, int> fallen;
  for (const PanelStep& step : balance_paths(paths, 4, 2, 4)) ++fallen[step.panel];
  EXPECT_EQ(fallen, (std::map<int, int>{{0, 2}, {1, 2}, {2, 3}}));
}

// Cheap blocks fall first, and what is dear in one output is weighed with the others of its panel.
TEST(BalancePaths, TheLeastLossOfAPanelFallsFirst) {
  std::vector<Elimination> paths(2);
  paths[0] = {{0, 1}, {0.1, 5}};
  paths[1] = {{0, 1}, {3, 0.2}};
  std::vector<int> groups;
  for (const PanelStep& step : balance_paths(paths, 2, 2, 1)) groups.push_back(step.group);
  EXPECT_EQ(groups, (std::vector<int>{0, 0, 1, 1}));  // 3.1 against 5.2
  paths[0].loss = {0.1, 1};
  groups.clear();
  for (const PanelStep& step : balance_paths(paths, 2, 2, 1)) groups.push_back(step.group);
  EXPECT_EQ(groups, (std::vector<int>{1, 1, 0, 0}));  // 3.1 against 1.2
}

}  // namespace
}  // namespace pipit::internal
