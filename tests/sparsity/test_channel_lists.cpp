// Lists of channels, their norms, and what is taken from them.
#include "sparsity/channel_lists.h"

#include <gmock/gmock.h>

#include "layers/passes/real_weights.h"
#include "sparsity/remove_channels.h"
#include "tests/support/test_graph.h"

namespace pipit {
namespace {

using test::TestGraph;
using ::testing::ElementsAre;

// stem -> [expand -> depthwise -> project] + stem -> head
Graph inverted_residual() {
  TestGraph b;
  const ValueId stem = b.conv("stem", b.input(Shape{1, 3, 8, 8}), 4, 3, true);
  ConvAttributes depthwise;
  depthwise.groups = 6;
  ValueId v =
      b.add("depthwise", Conv(depthwise),
            {b.conv("expand", stem, 6, 1, true), b.constant(Shape{6, 1, 1, 1}), b.constant(Shape{6})});
  v = b.binary("add", BinaryKind::add, b.conv("project", v, 4, 1), stem);
  return b.build({b.conv("head", v, 5)});
}

TEST(ChannelLists, OfAnInvertedResidual) {
  const Graph graph = inverted_residual();
  const ChannelGroups found = find_channel_groups(graph);
  const std::vector<ChannelList> lists = channel_lists(graph, found);
  ASSERT_EQ(lists.size(), 2U);
  EXPECT_THAT(lists[0].groups, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(lists[0].writers, ElementsAre(0, 3));
  EXPECT_THAT(lists[0].readers, ElementsAre(1, 5));
  EXPECT_FALSE(lists[0].inner);
  EXPECT_THAT(lists[1].groups, ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(lists[1].writers, ElementsAre(1, 2));
  EXPECT_THAT(lists[1].readers, ElementsAre(2, 3));
  EXPECT_TRUE(lists[1].inner);
}

TEST(ChannelLists, NormsAddUpOverAllThatWrites) {
  const Graph graph = inverted_residual();
  const ChannelGroups found = find_channel_groups(graph);
  const std::span<const float> expand = real_weights(graph, graph.nodes()[1]).values();
  const double depthwise = static_cast<double>(real_weights(graph, graph.nodes()[2]).values()[2]);
  double l1 = std::abs(depthwise);
  double l2 = depthwise * depthwise;
  for (const float w : expand.subspan(2 * 4, 4)) {
    l1 += std::abs(static_cast<double>(w));
    l2 += static_cast<double>(w) * static_cast<double>(w);
  }
  EXPECT_DOUBLE_EQ(channel_norms(graph, found, ChannelNorm::l1)[4 + 2], l1);
  EXPECT_DOUBLE_EQ(channel_norms(graph, found, ChannelNorm::l2)[4 + 2], l2);
}

TEST(ChannelLists, SharesAreRounded) {
  EXPECT_EQ(channels_kept(64, 0.5), 32);
  EXPECT_EQ(channels_kept(64, 0.55, 16), 32);
  EXPECT_EQ(channels_kept(64, 0.65, 16), 48);
  EXPECT_EQ(channels_kept(64, 0, 8), 8);
  EXPECT_EQ(channels_kept(5, 0, 8), 5);
  EXPECT_EQ(channels_kept(20, 1, 8), 20);
  EXPECT_EQ(channels_kept(20, 0.5, 8), 8);
  EXPECT_THROW(channels_kept(20, 1.5), Error);
}

TEST(ChannelLists, TheLeastImportantGo) {
  const Graph graph = inverted_residual();
  const ChannelGroups found = find_channel_groups(graph);
  const ChannelList inner = channel_lists(graph, found)[1];
  std::vector<double> importance(found.groups.size(), 0);
  for (const int g : inner.groups) importance[static_cast<std::size_t>(g)] = g % 3;  // 1 2 0 1 2 0
  std::vector<bool> removed(found.groups.size(), false);
  remove_least(inner, importance, 3, removed);
  for (std::size_t g = 0; g < removed.size(); ++g) EXPECT_EQ(removed[g], g == 4 || g == 6 || g == 9) << g;

  const PruningMask mask = channel_mask(graph, found, removed);
  ASSERT_EQ(mask.size(), 2U);
  EXPECT_EQ(mask[0].node, "expand");
  EXPECT_EQ(mask[1].node, "depthwise");
  for (const LayerMask& layer : mask) EXPECT_THAT(layer.removed, ElementsAre(1, 0, 1, 0, 0, 1));
  const Graph masked = apply_mask(graph, mask);
  EXPECT_EQ(find_dead_groups(masked, find_channel_groups(masked)), removed);
  test::expect_same_outputs(masked, zero_channels(graph, found, removed), 0);
}

}  // namespace
}  // namespace pipit
