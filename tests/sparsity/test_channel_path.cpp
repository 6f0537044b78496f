#include "sparsity/channel_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "sparsity/pruning_path.h"
#include "sparsity/remove_channels.h"
#include "tests/sparsity/small_network.h"

namespace pipit {
namespace {

using ::testing::ElementsAre;

struct SmallNetwork {
  unsigned seed = test::test_seed();
  std::mt19937 random{seed};
  Graph graph = test::small_network(random);

  std::vector<Tensor> images(int count) { return test::smooth_images(random, count); }
  const std::string& name(int node) const { return graph.nodes()[static_cast<std::size_t>(node)].name; }
};

TEST(ChannelPath, FamiliesHaveOneWriter) {
  const SmallNetwork f;
  const std::vector<ChannelFamily> families = find_families(f.graph, find_channel_groups(f.graph));
  ASSERT_EQ(families.size(), 2U) << "not the residual stream";
  EXPECT_EQ(f.name(*families[0].writers.begin()), "inner");
  EXPECT_EQ(f.name(*families[0].readers.begin()), "outer");
  EXPECT_EQ(families[0].groups.size(), 24U);
  EXPECT_EQ(f.name(*families[1].writers.begin()), "last");
  EXPECT_EQ(f.name(*families[1].readers.begin()), "fc");
  EXPECT_EQ(families[1].groups.size(), 32U);
}

TEST(ChannelPath, RoundsToMultiples) {
  ChannelPath path;
  path.family.groups.assign(24, 0);
  path.order.assign(22, 0);
  EXPECT_EQ(path.falling(1, 4), 0U);
  EXPECT_EQ(path.falling(0.5, 4), 12U);
  EXPECT_EQ(path.falling(0.6, 4), 8U);     // 14.4 -> 16 stay
  EXPECT_EQ(path.falling(0.01, 4), 20U);   // 4 stay
  EXPECT_EQ(path.falling(0.01, 1), 22U);   // no more than the path has
  EXPECT_EQ(path.falling(0.99, 100), 0U);  // fewer than one multiple: all stay
  EXPECT_THROW(path.falling(0, 4), Error);
  EXPECT_THROW(path.falling(1.1, 4), Error);
}

TEST(ChannelPath, JoinsReaders) {
  ChannelFamily family;
  family.groups = {10, 11, 12, 13};
  const ChannelPath one = join_readers(family, {{{2, 0}, {1, 5}}});
  EXPECT_THAT(one.order, ElementsAre(12, 10));
  EXPECT_THAT(one.loss, ElementsAre(1, 6));
  const ChannelPath two = join_readers(family, {{{2, 0, 1}, {1, 5, 6}}, {{1, 0, 2}, {1, 2, 9}}});
  EXPECT_THAT(two.order, ElementsAre(10, 11, 12));  // 5 + 2, 6 + 1, 1 + 9
  EXPECT_THAT(two.loss, ElementsAre(7, 14, 24));
}

// The pruned network is small for real, and computes what the masked one does; refit makes it better than its mask.
TEST(ChannelPath, LeadsToASmallerNetwork) {
  SmallNetwork f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  PathOptions options;
  options.walk.threads = 2;
  options.families = true;
  const Paths paths = find_paths(f.graph, f.images(40), options);
  ASSERT_EQ(paths.channels.size(), 2U);
  EXPECT_EQ(paths.rows.size(), 3U);
  std::vector<bool> removed(paths.groups.groups.size(), false);
  for (const ChannelPath& path : paths.channels) {
    EXPECT_TRUE(std::is_sorted(path.loss.begin(), path.loss.end()));
    for (std::size_t i = 0; i < path.falling(0.5, 4); ++i)
      removed[static_cast<std::size_t>(path.order[i])] = true;
  }
  const Removals removals = removals_of(f.graph, paths.groups, removed);
  EXPECT_EQ(removals.size(), 4U);
  RemovalOptions how;
  how.walk.threads = 2;
  const Remaining fitted = remove_and_refit(f.graph, f.images(40), removals, how);
  const Graph small = remove_channels(fitted.graph, find_channel_groups(fitted.graph), removed);
  const Graph masked = zero_channels(f.graph, paths.groups, removed);
  EXPECT_EQ(real_weights(small, weighted_node(small, "inner")).shape, (Shape{12, 16, 3, 3}));
  EXPECT_EQ(real_weights(small, weighted_node(small, "outer")).shape, (Shape{16, 12, 3, 3}));
  EXPECT_EQ(real_weights(small, weighted_node(small, "fc")).shape, (Shape{10, 16, 1, 1}));
  double own = 0, of_mask = 0;
  for (Tensor& image : f.images(20)) {
    std::vector<Tensor> one;
    one.push_back(std::move(image));
    const auto run = [&](const Graph& graph) { return test::run_graph(graph, default_registry(), one); };
    const std::vector<Tensor> dense = run(f.graph), fit = run(fitted.graph), cut = run(small),
                              zero = run(masked);
    EXPECT_LT(test::relative_error(cut[0].values<float>(), fit[0].values<float>()), 1e-5);
    own += test::relative_error(cut[0].values<float>(), dense[0].values<float>());
    of_mask += test::relative_error(zero[0].values<float>(), dense[0].values<float>());
  }
  EXPECT_LT(own, of_mask);
}

TEST(ChannelPath, RefusesOtherMarks) {
  const SmallNetwork f;
  EXPECT_THROW(removals_of(f.graph, find_channel_groups(f.graph), {true}), Error);
}

}  // namespace
}  // namespace pipit
