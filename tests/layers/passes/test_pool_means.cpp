// Means over all positions of images.
#include <gtest/gtest.h>

#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/pipeline.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

// x.mean((2, 3)), with and without keepdim; what is no mean of an image stays.
TEST(PoolMeans, OverAllPositionsOfImages) {
  TestGraph b;
  const auto mean = [&](const std::string& name, ValueId from, const std::vector<std::int64_t>& axes,
                        bool keep, ReduceKind kind = ReduceKind::mean) {
    return b.add(name, Reduce(ReduceAttributes{kind, axes, keep}), {from});
  };
  const ValueId x = b.input(Shape{2, 5, 4, 3});
  const ValueId image = b.unary("relu", UnaryKind::relu, b.conv("conv", x, 8));
  const ValueId tokens = b.add("tokens", Reshape({Shape{2, 8, 12}}), {image});
  const ValueId again = b.add("again", Reshape({Shape{2, 8, 6, 2}}), {tokens});
  const Graph before =
      b.build({mean("kept", image, {2, 3}, true), mean("dropped", image, {-1, 2}, false),
               mean("rows", image, {2}, true), mean("channels", image, {1, 2, 3}, true),
               mean("sum", image, {2, 3}, true, ReduceKind::sum), mean("of tokens", tokens, {2}, true),
               mean("no layer's", x, {2, 3}, true), mean("in rows", again, {2, 3}, true)});
  const Rewritten after = pool_means(before);
  EXPECT_EQ(after.changes, 2);
  EXPECT_EQ(count_type(after.graph, "Pool"), 2);
  EXPECT_EQ(count_type(after.graph, "Reduce"), 6);
  expect_same_outputs(before, after.graph);
  expect_same_outputs(before, optimize(before));
}

TEST(PoolMeans, OverAllPositionsOfVolumes) {
  TestGraph b;
  PoolAttributes slices;
  slices.window.rank = 3;
  slices.window.kernel = {2, 1, 1};
  const ValueId volume = b.add("pool", Pool(slices), {b.input(Shape{2, 5, 4, 3, 6})});
  const Graph before =
      b.build({b.add("mean", Reduce(ReduceAttributes{ReduceKind::mean, {2, 3, 4}, true}), {volume}),
               b.add("slices", Reduce(ReduceAttributes{ReduceKind::mean, {3, 4}, true}), {volume})});
  const Rewritten after = pool_means(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count_type(after.graph, "Pool"), 2);
  expect_same_outputs(before, after.graph);
}

TEST(PoolMeans, WherePoolsAreNoWorse) {
  const auto changes = [](const Shape& shape, std::int64_t channels) {
    TestGraph b;
    const ValueId x = b.conv("conv", b.input(shape), channels, 1);
    std::vector<std::int64_t> axes;
    for (int d = 2; d < shape.rank(); ++d) axes.push_back(d);
    const ValueId y = b.add("mean", Reduce(ReduceAttributes{ReduceKind::mean, axes, true}), {x});
    return pool_means(b.build({y})).changes;
  };
  EXPECT_EQ(changes(Shape{1, 3, 20, 20}, 16), 1);
  EXPECT_EQ(changes(Shape{1, 3, 16, 16}, 5), 1);
  EXPECT_EQ(changes(Shape{1, 3, 20, 20}, 5), 0) << "other channels, many positions";
  EXPECT_EQ(changes(Shape{1, 3, 1, 5000}, 8), 0) << "a long row";
}

}  // namespace
}  // namespace pipit::internal
