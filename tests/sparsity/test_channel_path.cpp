#include "sparsity/channel_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "sparsity/pruning_path.h"
#include "sparsity/remove_channels.h"
#include "tests/sparsity/small_network.h"

namespace pipit::internal {
namespace {

using ::testing::ElementsAre;

struct SmallNetwork {
  unsigned seed = test::test_seed();
  std::mt19937 random{seed};
  Graph graph = test::small_network(random);

  std::vector<Tensor> images(int count) { return test::smooth_images(random, count); }
  const std::string& name(int node) const { return graph.nodes()[static_cast<std::size_t>(node)].name; }
};

TEST(ChannelPath, FamiliesAndStreams) {
  const SmallNetwork f;
  const std::vector<ChannelFamily> families = find_families(f.graph, find_channel_groups(f.graph));
  const auto names = [&](const std::set<int>& nodes) {
    std::vector<std::string> all;
    for (const int n : nodes) all.push_back(f.name(n));
    return all;
  };
  ASSERT_EQ(families.size(), 3U);
  EXPECT_THAT(names(families[0].writers), ElementsAre("stem", "outer", "depthwise"));
  EXPECT_THAT(names(families[0].readers), ElementsAre("inner", "last"));
  EXPECT_TRUE(families[0].stream);
  EXPECT_EQ(families[0].groups.size(), 16U);
  EXPECT_THAT(names(families[1].writers), ElementsAre("inner"));
  EXPECT_THAT(names(families[1].readers), ElementsAre("outer"));
  EXPECT_FALSE(families[1].stream);
  EXPECT_EQ(families[1].groups.size(), 24U);
  EXPECT_THAT(names(families[2].writers), ElementsAre("last"));
  EXPECT_THAT(names(families[2].readers), ElementsAre("fc"));
  EXPECT_EQ(families[2].groups.size(), 32U);
}

// y = relu(conv(x) + x) reads what it writes.
TEST(ChannelPath, ALayerThatAddsToWhatItReads) {
  std::mt19937 random(1);
  GraphBuilder graph;
  ConvAttributes a;
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t out, ValueId residual = kNoValue) {
    const ValueId w = graph.add_constant(
        name + ".w", test::random_tensor(Shape{out, graph.value(x).desc.shape[1], 1, 1}, random));
    return graph.add1(name, std::make_shared<Conv>(a), {x, w, kNoValue, residual}, name);
  };
  ValueId x = conv("first", graph.add_input("image", TensorDesc{Shape{1, 3, 4, 4}}), 8);
  x = conv("block", x, 8, x);
  graph.mark_output(conv("last", x, 5));
  const Graph built = graph.build();
  const std::vector<ChannelFamily> families = find_families(built, find_channel_groups(built));
  ASSERT_EQ(families.size(), 1U);
  EXPECT_THAT(families[0].writers, ElementsAre(0, 1));
  EXPECT_THAT(families[0].readers, ElementsAre(1, 2));
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

TEST(ChannelPath, NamesTheGroups) {
  ChannelFamily family;
  family.groups = {10, 11, 12, 13};
  EliminationOptions options;
  options.importance = Importance::activation;
  EliminationPart part{{}, {1, 1, 1, 1}, {2, 3, 1, 4}, {{0}, {1}, {2}, {3}}, 1};
  const ChannelPath one = order_channels(family, {part}, options);
  EXPECT_THAT(one.order, ElementsAre(12, 10, 11));
  EXPECT_THAT(one.loss, ElementsAre(1, 5, 14));
  const ChannelPath two =
      order_channels(family, {part, {{}, {1, 1, 1, 1}, {1, 0, 5, 1}, {{0}, {1}, {2}, {3}}, 2}}, options);
  EXPECT_THAT(two.order, ElementsAre(10, 11, 13));  // 4 + 2, 9, 16 + 2, 1 + 50
  EXPECT_THAT(two.loss, ElementsAre(6, 15, 33));
}

TEST(ChannelPath, BlocksFallWhole) {
  ChannelFamily family;
  family.groups = {10, 11, 12, 13, 14};
  EliminationOptions options;
  options.importance = Importance::activation;
  const EliminationPart part{{}, {1, 1, 1, 1, 1}, {2, 3, 1, 4, 3}, {{0}, {1}, {2}, {3}, {4}}, 1};
  const ChannelPath path = order_channels(family, {part}, options, 2);
  EXPECT_THAT(path.order, ElementsAre(14, 10, 11));  // 9, 4 + 9, 1 + 16 stays
  EXPECT_THAT(path.loss, ElementsAre(9, 15.5, 22));
  EXPECT_EQ(path.falling(1, 4), 0U);
  EXPECT_EQ(path.falling(0.85, 4), 1U);
  EXPECT_EQ(path.falling(0.65, 4), 1U);
  EXPECT_EQ(path.falling(0.5, 4), 3U);
  EXPECT_EQ(path.falling(0.1, 4), 3U);
}

// The pruned network is small for real, its residual stream, too, and computes what the masked one does; refit makes it
// better than its mask.
TEST(ChannelPath, LeadsToASmallerNetwork) {
  SmallNetwork f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  PathOptions options;
  options.walk.threads = 2;
  options.families = options.streams = true;
  const Paths paths = find_paths(f.graph, f.images(40), options);
  ASSERT_EQ(paths.channels.size(), 3U);
  EXPECT_EQ(paths.rows.size(), 3U);
  std::vector<bool> removed(paths.groups.groups.size(), false);
  for (const ChannelPath& path : paths.channels) {
    EXPECT_TRUE(std::is_sorted(path.loss.begin(), path.loss.end()));
    for (std::size_t i = 0; i < path.falling(0.5, 4); ++i)
      removed[static_cast<std::size_t>(path.order[i])] = true;
  }
  const Removals removals = removals_of(f.graph, paths.groups, removed);
  EXPECT_EQ(removals.size(), 6U);
  RemovalOptions how;
  how.walk.threads = 2;
  const Remaining fitted = remove_and_refit(f.graph, f.images(40), removals, how);
  const Graph small = remove_channels(fitted.graph, find_channel_groups(fitted.graph), removed);
  const Graph masked = zero_channels(f.graph, paths.groups, removed);
  EXPECT_EQ(real_weights(small, weighted_node(small, "inner")).shape, (Shape{12, 8, 3, 3}));
  EXPECT_EQ(real_weights(small, weighted_node(small, "outer")).shape, (Shape{8, 12, 3, 3}));
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
  options.streams = false;
  EXPECT_EQ(find_paths(f.graph, f.images(10), options).channels.size(), 2U);
}

TEST(ChannelPath, RefusesOtherMarks) {
  const SmallNetwork f;
  EXPECT_THROW(removals_of(f.graph, find_channel_groups(f.graph), {true}), Error);
}

}  // namespace
}  // namespace pipit::internal
