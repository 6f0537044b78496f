// Channel shuffles written out.
#include <gtest/gtest.h>

#include "layers/ops/channel_shuffle.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/pipeline.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

ValueId shuffle(TestGraph& b, const std::string& name, ValueId x, std::int64_t groups) {
  const Shape shape = b.graph.value(x).desc.shape;
  std::vector<std::int64_t> apart{shape[0], groups, shape[1] / groups};
  std::vector<std::int64_t> order{0, 2, 1};
  for (int d = 2; d < shape.rank(); ++d) {
    order.push_back(std::ssize(apart));
    apart.push_back(shape[d]);
  }
  const ValueId y = b.add(name + "/apart", Reshape({Shape(apart)}), {x});
  return b.add(name + "/together", Reshape({shape}), {b.add(name, Transpose({order}), {y})});
}

std::vector<ValueId> split(TestGraph& b, ValueId x, std::vector<std::int64_t> sizes) {
  return b.graph.add("split", std::make_shared<Split>(SplitAttributes{1, std::move(sizes)}), {x});
}

// What of the graph is left beside ChannelShuffle and Conv.
int others(const Graph& graph) {
  return static_cast<int>(graph.nodes().size()) - count_type(graph, "ChannelShuffle") -
         count_type(graph, "Conv");
}

TEST(FuseChannelShuffle, WithTheConcatInFrontAndTheSplitBehind) {
  for (const std::int64_t groups : {2, 3, 6}) {
    TestGraph b;
    const ValueId x = b.input(Shape{2, 5, 4, 3});
    const ValueId joined = b.add("concat", Concat({1}), {b.conv("a", x, 7), b.conv("b", x, 11)});
    const std::vector<ValueId> halves = split(b, shuffle(b, "shuffle", joined, groups), {8, 10});
    const Graph before = b.build({halves[0], b.conv("last", halves[1], 4)});
    const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(others(after.graph), 0);
    expect_same_outputs(before, after.graph);
    expect_same_outputs(before, optimize(before));
    EXPECT_EQ(count_type(optimize(before), "ChannelShuffle"), 1);
  }
}

Slice channels(std::int64_t first, std::int64_t end, std::int64_t step = 1) {
  return Slice({{first}, {end}, {1}, {step}});
}

// As torch.chunk is written.
TEST(FuseChannelShuffle, WithTheSlicesBehind) {
  TestGraph b;
  const ValueId x = shuffle(b, "shuffle", b.conv("image", b.input(Shape{1, 3, 4, 3}), 12), 2);
  const Graph before = b.build({b.add("last", channels(7, 100), {x}), b.add("first", channels(0, 3), {x}),
                                b.add("middle", channels(-9, -5), {x})});
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(others(after.graph), 0);
  expect_same_outputs(before, after.graph);
}

TEST(FuseChannelShuffle, LeavesSlicesThatAreNoSplitAlone) {
  using Slices = std::vector<Slice>;
  const Slice rows({{0, 0}, {6, 2}, {1, 2}, {1, 1}});
  for (const Slices& slices : {Slices{channels(0, 6)}, Slices{channels(0, 7), channels(6, 12)},
                               Slices{channels(0, 6), channels(0, 6), channels(6, 12)},
                               Slices{channels(0, 12, 2), channels(6, 12)}, Slices{rows, channels(6, 12)}}) {
    TestGraph b;
    const ValueId x = shuffle(b, "shuffle", b.conv("image", b.input(Shape{1, 3, 4, 3}), 12), 2);
    std::vector<ValueId> outputs;
    for (const Slice& slice : slices)
      outputs.push_back(b.add("slice" + std::to_string(outputs.size()), slice, {x}));
    const Graph before = b.build(outputs);
    const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
    EXPECT_EQ(count_type(after.graph, "Slice"), std::ssize(slices));
    expect_same_outputs(before, after.graph);
  }
}

TEST(FuseChannelShuffle, AndNoMoreThanALayerTakes) {
  TestGraph b;
  const ValueId x = b.conv("image", b.input(Shape{1, 3, 4, 3}), 1);
  const ValueId joined = b.add("concat", Concat({1}), std::vector<ValueId>(18, x));
  const ValueId y = shuffle(b, "shuffle", joined, 2);
  const Graph before = b.build(split(b, y, std::vector<std::int64_t>(18, 1)));
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(others(after.graph), 2);
  expect_same_outputs(before, after.graph);
}

TEST(FuseChannelShuffle, Alone) {
  for (const Shape& shape : {Shape{2, 12}, Shape{1, 12, 4, 3}}) {
    TestGraph b;
    const ValueId x = b.input(shape);
    const ValueId image = shape.rank() == 2 ? x : b.conv("image", x, 12);
    const Graph before = b.build({shuffle(b, "shuffle", image, 4)});
    const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(others(after.graph), 0);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FuseChannelShuffle, KeepsWhatOthersRead) {
  TestGraph b;
  const ValueId x = b.conv("image", b.input(Shape{2, 3, 4, 3}), 6);
  const ValueId joined = b.add("concat", Concat({1}), {x, b.constant(Shape{2, 6, 4, 3})});
  const ValueId first = shuffle(b, "first", joined, 2);  // a constant is joined
  const ValueId twice = b.add("twice", Concat({1}), {first, x});
  const ValueId second = shuffle(b, "second", twice, 3);  // another node reads the Concat
  const Graph before = b.build({twice, second, split(b, second, {6, 12})[1]});
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 2);
  EXPECT_EQ(count_type(after.graph, "Concat"), 2);
  EXPECT_EQ(count_type(after.graph, "Split"), 1);
  expect_same_outputs(before, after.graph);
}

TEST(FuseChannelShuffle, LeavesOtherRearrangementsAlone) {
  TestGraph b;
  const ValueId input = b.input(Shape{2, 6, 4, 3});
  const ValueId x = b.conv("image", input, 6);
  // Groups of two samples' channels; another order; rows of the image; tokens; what is in rows.
  const auto moved = [&](const std::string& name, ValueId from, const Shape& apart,
                         const std::vector<std::int64_t>& order, const Shape& together) {
    const ValueId y = b.add(name, Transpose({order}), {b.add(name + "/a", Reshape({apart}), {from})});
    return b.add(name + "/b", Reshape({together}), {y});
  };
  const Shape same = b.graph.value(x).desc.shape;
  const ValueId tokens = b.add("tokens", Reshape({Shape{2, 6, 12}}), {x});
  const std::vector<ValueId> outputs{
      moved("samples", x, Shape{4, 3, 4, 3}, {0, 2, 1, 3}, same),
      moved("order", x, Shape{2, 2, 3, 4, 3}, {0, 2, 1, 4, 3}, same),
      moved("rows", x, Shape{2, 6, 2, 2, 3}, {0, 1, 3, 2, 4}, same),
      moved("mixed", x, Shape{2, 12, 2, 3}, {0, 2, 1, 3}, same),
      moved("one group", x, Shape{2, 1, 6, 12}, {0, 2, 1, 3}, same),
      moved("shape", x, Shape{2, 2, 3, 12}, {0, 2, 1, 3}, Shape{2, 6, 3, 4}),
      moved("in rows", input, Shape{2, 2, 3, 12}, {0, 2, 1, 3}, same),
      moved("tokens/moved", tokens, Shape{2, 2, 3, 12}, {0, 2, 1, 3}, Shape{2, 6, 12}),
  };
  const Graph before = b.build(outputs);
  EXPECT_EQ(fuse_channel_groups(before, DeviceKind::cpu).changes, 0);
}

TEST(FuseChannelShuffle, OneAfterTheOther) {
  TestGraph b;
  ValueId x = b.conv("image", b.input(Shape{1, 3, 4, 4}), 4);
  for (const char* name : {"p", "q", "r"}) x = shuffle(b, name, x, 2);
  const Graph before = b.build({x});
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 3);
  expect_same_outputs(before, after.graph);
}

}  // namespace
}  // namespace pipit::internal
