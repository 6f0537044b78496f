// Which channels are tied, and which stay.
#include "sparsity/channel_groups.h"

#include <gmock/gmock.h>

#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "sparsity/remove_channels.h"
#include "tests/support/linear_time.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::TestGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Runs = std::vector<ChannelRun>;

// A convolution of groups, 1x1.
ValueId grouped(TestGraph& b, const std::string& name, ValueId x, std::int64_t outputs, std::int64_t groups) {
  ConvAttributes a;
  a.groups = groups;
  const std::int64_t in = b.graph.value(x).desc.shape[1];
  return b.add(name, Conv(a), {x, b.constant(Shape{outputs, in / groups, 1, 1})});
}

int node_named(const Graph& graph, const std::string& name) {
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (graph.nodes()[n].name == name) return static_cast<int>(n);
  }
  ADD_FAILURE() << "no node " << name;
  return -1;
}

// The group of an output channel of a node.
const ChannelGroup& group_of(const Graph& graph, const ChannelGroups& found, const std::string& name,
                             std::int64_t channel) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(node_named(graph, name))];
  const ValueChannels& channels = found.values[index(node.outputs[0])];
  return found.groups.at(static_cast<std::size_t>((*channels.groups)[channels.entry(channel)]));
}

TEST(ChannelGroups, OfAChainOfConvolutions) {
  TestGraph b;
  ValueId v = b.conv("first", b.input(Shape{1, 3, 8, 8}), 4);
  v = b.unary("relu", UnaryKind::relu, b.batch_norm("bn", v));
  const Graph graph = b.build({b.conv("second", v, 5)});
  const ChannelGroups found = find_channel_groups(graph);
  ASSERT_EQ(found.groups.size(), 4U + 5U);
  for (int c = 0; c < 4; ++c) {
    EXPECT_TRUE(found.groups[static_cast<std::size_t>(c)].removable());
    EXPECT_EQ(found.groups[static_cast<std::size_t>(c)].outputs, (Runs{{0, c, 1}}));
    EXPECT_EQ(found.groups[static_cast<std::size_t>(c)].inputs, (Runs{{3, c, 1}}));
  }
  for (std::size_t c = 4; c < 9; ++c)
    EXPECT_EQ(found.groups[c].kept_because, "'second' (Conv): an output of the model");
}

TEST(ChannelGroups, AnAdditionTiesItsOperands) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 3, 8, 8});
  const ValueId sum = b.binary("sum", BinaryKind::add, b.conv("a", x, 4), b.conv("b", x, 4));
  const Graph graph = b.build({b.conv("c", sum, 2)});
  const ChannelGroups found = find_channel_groups(graph);
  EXPECT_EQ(group_of(graph, found, "a", 2).outputs, (Runs{{0, 2, 1}, {1, 2, 1}}));
  EXPECT_EQ(&group_of(graph, found, "a", 2), &group_of(graph, found, "b", 2));
  EXPECT_EQ(group_of(graph, found, "a", 2).inputs, (Runs{{3, 2, 1}}));
}

TEST(ChannelGroups, WhatIsAddedToTheInputStays) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 8, 8});
  const ValueId sum = b.binary("sum", BinaryKind::add, x, b.conv("a", x, 4));
  const Graph graph = b.build({b.conv("c", sum, 2)});
  EXPECT_THAT(group_of(graph, find_channel_groups(graph), "a", 1).kept_because, HasSubstr("'sum' (Binary)"));
}

TEST(ChannelGroups, DepthwiseConvolutionsTieInputsToOutputs) {
  TestGraph b;
  const ValueId x = b.conv("expand", b.input(Shape{1, 3, 8, 8}), 6);
  const Graph graph = b.build({b.conv("project", grouped(b, "depthwise", x, 12, 6), 2)});
  const ChannelGroups found = find_channel_groups(graph);
  const ChannelGroup& group = group_of(graph, found, "expand", 4);
  EXPECT_EQ(group.outputs, (Runs{{0, 4, 1}, {1, 8, 2}}));
  EXPECT_EQ(group.inputs, (Runs{{1, 4, 1}, {2, 8, 2}}));
}

TEST(ChannelGroups, AFewGroupsLoseTheSameChannelEach) {
  TestGraph b;
  const ValueId x = b.conv("a", b.input(Shape{1, 3, 8, 8}), 8);
  const Graph graph = b.build({b.conv("c", grouped(b, "b", x, 12, 2), 2)});
  const ChannelGroups found = find_channel_groups(graph);
  EXPECT_EQ(group_of(graph, found, "a", 1).outputs, (Runs{{0, 1, 1}, {0, 5, 1}}));
  EXPECT_EQ(group_of(graph, found, "b", 1).outputs, (Runs{{1, 1, 1}, {1, 7, 1}}));
  EXPECT_EQ(group_of(graph, found, "b", 1).inputs, (Runs{{2, 1, 1}, {2, 7, 1}}));
}

TEST(ChannelGroups, AFlattenGivesEachChannelABlockOfColumns) {
  TestGraph b;
  ValueId v = b.conv("conv", b.input(Shape{2, 3, 4, 5}), 3);
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, 60}}), {v});
  v = b.add("hidden", Gemm(GemmAttributes{}), {v, b.constant(Shape{60, 7})});
  const Graph graph = b.build({b.add("fc", Gemm(GemmAttributes{}), {v, b.constant(Shape{7, 2})})});
  const ChannelGroups found = find_channel_groups(graph);
  EXPECT_EQ(group_of(graph, found, "conv", 1).inputs, (Runs{{2, 20, 20}}));
  EXPECT_EQ(group_of(graph, found, "hidden", 6).inputs, (Runs{{3, 6, 1}}));
}

TEST(ChannelGroups, AFlattenOfChannelsLastHasThemInEveryPosition) {
  TestGraph b;
  ValueId v = b.conv("conv", b.input(Shape{2, 3, 2, 2}), 3);
  v = b.add("nhwc", Transpose(TransposeAttributes{{0, 2, 3, 1}}), {v});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, 12}}), {v});
  const Graph graph = b.build({b.add("fc", Gemm(GemmAttributes{}), {v, b.constant(Shape{12, 7})})});
  EXPECT_EQ(group_of(graph, find_channel_groups(graph), "conv", 1).inputs,
            (Runs{{3, 1, 1}, {3, 4, 1}, {3, 7, 1}, {3, 10, 1}}));
}

TEST(ChannelGroups, JoinedAndSplit) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 3, 8, 8});
  const ValueId joined =
      b.add("concat", Concat(ConcatAttributes{1}), {b.conv("a", x, 4), x, b.conv("b", x, 2)});
  const ValueId part = b.add("slice", Slice(SliceAttributes{{3}, {8}, {1}, {1}}), {joined});
  const Graph graph = b.build({b.conv("c", joined, 2), b.conv("d", part, 2)});
  const ChannelGroups found = find_channel_groups(graph);
  const int c = node_named(graph, "c");
  const int d = node_named(graph, "d");
  EXPECT_EQ(group_of(graph, found, "a", 0).inputs, (Runs{{c, 0, 1}}));
  EXPECT_EQ(group_of(graph, found, "a", 3).inputs, (Runs{{c, 3, 1}, {d, 0, 1}}));
  EXPECT_EQ(group_of(graph, found, "b", 0).inputs, (Runs{{c, 7, 1}, {d, 4, 1}}));
  EXPECT_EQ(group_of(graph, found, "b", 1).inputs, (Runs{{c, 8, 1}}));
}

TEST(ChannelGroups, ReasonsOfWhatStays) {
  const auto reason = [](const std::function<ValueId(TestGraph&, ValueId)>& then) {
    TestGraph b;
    const ValueId v = b.conv("conv", b.input(Shape{1, 3, 4, 4}), 4);
    const Graph graph = b.build({b.conv("after", then(b, v), 2)});
    return group_of(graph, find_channel_groups(graph), "conv", 0).kept_because;
  };
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) { return b.add("s", Softmax(SoftmaxAttributes{1}), {v}); }),
              HasSubstr("'s' (Softmax): it normalizes over channels"));
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) {
                v = b.add("split", Reshape(ReshapeAttributes{Shape{1, 2, 2, 4, 4}}), {v});
                v = b.add("turn", Transpose(TransposeAttributes{{0, 2, 1, 3, 4}}), {v});
                return b.add("join", Reshape(ReshapeAttributes{Shape{1, 4, 4, 4}}), {v});
              }),
              HasSubstr("'split' (Reshape): it splits the channels up"));
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) {
                return b.add("tile", Tile(TileAttributes{{1, 1, 2, 1}}), {v});
              }),
              HasSubstr("'tile' (Tile): what the layer does with channels is not known"));
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) {
                return b.add("step", Slice(SliceAttributes{{0}, {4}, {1}, {2}}), {v});
              }),
              HasSubstr("with a step"));
  // A padded convolution cannot take sigmoid(0) into its bias.
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) { return b.unary("gate", UnaryKind::sigmoid, v); }),
              HasSubstr("'after' (Conv): without its weights the channel is a constant"));
  EXPECT_THAT(reason([](TestGraph& b, ValueId v) { return b.unary("log", UnaryKind::log, v); }),
              HasSubstr("'log' (Unary): without its weights the channel would not be a constant"));
  EXPECT_THAT(reason([](TestGraph&, ValueId v) { return v; }), IsEmpty());
}

TEST(ChannelGroups, TakeLinearTime) {
  const auto chain = [](int layers) {
    TestGraph b;
    const ValueId weights = b.constant(Shape{16, 16, 1, 1});
    ValueId v = b.input(Shape{1, 16, 2, 2});
    ValueId sum = b.add("stem", Conv(ConvAttributes{}), {v, weights});
    for (int i = 0; i < layers; ++i) {
      v = b.add("conv" + std::to_string(i), Conv(ConvAttributes{}), {sum, weights});
      sum = b.binary("add" + std::to_string(i), BinaryKind::add, v, sum);
    }
    return b.build({b.add("last", Conv(ConvAttributes{}), {sum, weights})});
  };
  test::expect_linear_time(64, chain, [](const Graph& graph) { find_channel_groups(graph); });
}

// Shapes that no memory could hold are nothing to allocate for.
TEST(ChannelGroups, AbsurdShapesAreBounded) {
  TestGraph b;
  ConvAttributes a;
  ValueId v = b.add("conv", Conv(a), {b.input(Shape{1, 1, 1 << 20, 1 << 20}), b.constant(Shape{4, 1, 1, 1})});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{1, std::int64_t{1} << 42}}), {v});
  const ValueId part =
      b.add("part", Slice(SliceAttributes{{1}, {(std::int64_t{1} << 42) - 1}, {1}, {1}}), {v});
  for (int i = 0; i < 8; ++i) v = b.add("double", Concat(ConcatAttributes{1}), {v, v});
  const Graph graph = b.build({b.unary("relu", UnaryKind::relu, part), b.unary("r", UnaryKind::relu, v)});
  EXPECT_THAT(group_of(graph, find_channel_groups(graph), "conv", 0).kept_because,
              HasSubstr("too many channels"));
}

// Empty parts are no channels, and no division by their number.
TEST(ChannelGroups, EmptyPartsAreBounded) {
  TestGraph b;
  const ValueId v = b.conv("conv", b.input(Shape{1, 3, 4, 4}), 4);
  const std::vector<ValueId> parts =
      b.graph.add("split", std::make_shared<Split>(SplitAttributes{1, {0, 4}}), {v});
  const ValueId joined =
      b.add("concat", Concat(ConcatAttributes{1}), {b.unary("relu", UnaryKind::relu, parts[0]), parts[1]});
  const Graph graph = b.build({b.conv("after", joined, 2)});
  const ChannelGroups found = find_channel_groups(graph);
  EXPECT_TRUE(group_of(graph, found, "conv", 2).removable());
  const Graph small = remove_channels(graph, found, {true, false, false, false, false, false});
  EXPECT_EQ(small.value(small.nodes()[3].outputs[0]).desc.shape[1], 3);
}

}  // namespace
}  // namespace pipit::internal
