// Padding of its own before convolutions and pools.
#include <gtest/gtest.h>

#include <limits>

#include "layers/arrange.h"
#include "layers/fuse/passes.h"
#include "layers/pool.h"
#include "layers/qconv.h"
#include "layers/quantize.h"
#include "layers/quantize_axis.h"
#include "tests/support/test_graph.h"

namespace pipit {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Top 1, left 2, bottom 3, right 0.
ValueId pad(TestGraph& b, ValueId x, double value = 0) {
  return b.add("pad", Pad({PadMode::constant, {0, 0, 1, 2}, {0, 0, 3, 0}, value}), {x});
}

Window window(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0) {
  Window w;
  for (std::size_t d = 0; d < 2; ++d) {
    w.kernel[d] = kernel;
    w.stride[d] = stride;
    w.pad_begin[d] = w.pad_end[d] = padding;
  }
  return w;
}

TEST(FoldPadding, IntoConvolutionsThatPadThemselves) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 5, 7, 6});
  const ValueId padded = pad(b, x);
  ConvAttributes strided{.window = window(3, 2)};
  const ValueId first = b.conv("first", padded, 4);
  const ValueId second = b.add("second", Conv(strided), {padded, b.constant(Shape{3, 5, 3, 3})});
  const Graph before = b.build({first, second});
  const Rewritten after = fold_padding(before);
  EXPECT_EQ(after.changes, 2);
  EXPECT_EQ(count_type(after.graph, "Pad"), 0);
  expect_same_outputs(before, after.graph);
}

TEST(FoldPadding, IntoAveragePoolsThatThenCountIt) {
  for (const bool ceil : {false, true}) {
    for (const bool own : {false, true}) {
      TestGraph b;
      PoolAttributes a{
          .kind = PoolKind::average, .window = window(5, 2, own ? 1 : 0), .count_include_pad = own};
      a.window.ceil_mode = ceil;
      const Graph before = b.build({b.add("pool", Pool(a), {pad(b, b.input(Shape{1, 3, 8, 7}))})});
      const Rewritten after = fold_padding(before);
      // With a border of its own, a last window that starts in the other one would be dropped.
      EXPECT_EQ(after.changes, ceil && own ? 0 : 1) << ceil << own;
      expect_same_outputs(before, after.graph);
    }
  }
}

TEST(FoldPadding, IntoMaxPoolsOfWhatIsNeverNegativeOrOfMinusInfinity) {
  for (const bool lowest : {false, true}) {
    TestGraph b;
    ValueId x = b.input(Shape{2, 3, 9, 8});
    if (!lowest) x = b.unary("relu", UnaryKind::relu, x);
    const ValueId y = b.add("pool", Pool({.kind = PoolKind::max, .window = window(4, 2)}),
                            {pad(b, x, lowest ? -kInfinity : 0)});
    const Graph before = b.build({y});
    const Rewritten after = fold_padding(before);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(count_type(after.graph, "Pad"), 0);
    expect_same_outputs(before, after.graph, 0);
  }
}

TEST(FoldPadding, LeavesAloneWhatItWouldChange) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 3, 8, 8});
  const ValueId relu = b.unary("relu", UnaryKind::relu, x);
  const auto max_pool = [&](ValueId v, std::int64_t kernel) {
    return b.add("max", Pool({.kind = PoolKind::max, .window = window(kernel, 1)}), {v});
  };
  const auto padded = [&](PadAttributes a) { return b.add("pad", Pad(std::move(a)), {x}); };
  const std::vector<ValueId> outputs = {
      max_pool(pad(b, x), 4),     // zeros among negative numbers
      max_pool(pad(b, relu), 3),  // a window of nothing but border
      max_pool(pad(b, relu, 1), 4), b.conv("one", pad(b, x, 1), 3),
      b.conv("edge", padded({PadMode::edge, {0, 0, 1, 1}, {0, 0, 1, 1}, 0}), 3),
      b.conv("channels", padded({PadMode::constant, {0, 1, 0, 0}, {0, 0, 0, 0}, 0}), 3),
      b.conv("less", padded({PadMode::constant, {0, 0, 1, 1}, {0, 0, -1, 0}, 0}), 3),
      // Its own border does not count, the other does.
      b.add("average", Pool({.kind = PoolKind::average, .window = window(3, 1, 1)}), {pad(b, x)}),
      b.add("narrow", Pool({.kind = PoolKind::average, .window = window(3, 1)}), {pad(b, x)}),
      b.add("global", Pool({.kind = PoolKind::average, .global = true}), {pad(b, x)})};
  EXPECT_EQ(fold_padding(b.build(outputs)).changes, 0);
}

// As quantisers leave it: the border is quantised, and dequantised again.
TEST(FoldPadding, BetweenIntegersThatStayTheSame) {
  const Quantisation q{0.05F, 100, DType::u8};
  for (const bool same : {false, true}) {
    TestGraph b;
    ValueId v = b.add("q", Quantize(q), {b.input(Shape{1, 3, 6, 6})});
    v = pad(b, b.add("dq", Dequantize(q), {v}));
    const Quantisation after_pad = same ? q : Quantisation{0.07F, 100, DType::u8};
    v = b.add("dq2", Dequantize(after_pad), {b.add("q2", Quantize(after_pad), {v})});
    const Graph before = b.build({b.conv("conv", v, 4)});
    const Rewritten after = fold_padding(before);
    EXPECT_EQ(after.changes, same ? 1 : 0);
    EXPECT_EQ(count_type(after.graph, "Pad"), same ? 0 : 1);
    expect_same_outputs(before, after.graph);
  }
}

}  // namespace
}  // namespace pipit
