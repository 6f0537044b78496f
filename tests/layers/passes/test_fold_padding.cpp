// Padding of its own before convolutions and pools.
#include <gtest/gtest.h>

#include <limits>

#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/quantize_axis.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
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

// As quantizers leave it: the border is quantized, and dequantized again.
TEST(FoldPadding, BetweenIntegersThatStayTheSame) {
  const Quantization q{0.05F, 100, DType::u8};
  for (const bool same : {false, true}) {
    TestGraph b;
    ValueId v = b.add("q", Quantize(q), {b.input(Shape{1, 3, 6, 6})});
    v = pad(b, b.add("dq", Dequantize(q), {v}));
    const Quantization after_pad = same ? q : Quantization{0.07F, 100, DType::u8};
    v = b.add("dq2", Dequantize(after_pad), {b.add("q2", Quantize(after_pad), {v})});
    const Graph before = b.build({b.conv("conv", v, 4)});
    const Rewritten after = fold_padding(before);
    EXPECT_EQ(after.changes, same ? 1 : 0);
    EXPECT_EQ(count_type(after.graph, "Pad"), same ? 0 : 1);
    expect_same_outputs(before, after.graph);
  }
}

ValueId dilated(TestGraph& b, ValueId x, std::int64_t kernel, std::int64_t dilation,
                std::array<std::int64_t, 4> pads, std::int64_t groups = 1) {
  ConvAttributes a;
  a.groups = groups;
  for (std::size_t d = 0; d < 2; ++d) {
    a.window.kernel[d] = kernel;
    a.window.dilation[d] = dilation;
    a.window.pad_begin[d] = pads[d];
    a.window.pad_end[d] = pads[2 + d];
  }
  const std::int64_t channels = b.graph.value(x).desc.shape[1];
  return b.add("conv", Conv(a),
               {x, b.constant(Shape{6, channels / groups, kernel, kernel}), b.constant(Shape{6})});
}

const Window& only_window(const Graph& graph) {
  return layer_as<Conv>(*graph.nodes().at(0).layer).attributes().window;
}

TEST(TrimTaps, LeavesOutTapsThatReadPaddingOnly) {
  struct Trimmed {
    std::int64_t kernel, dilation;
    std::array<std::int64_t, 4> pads;
    std::array<std::int64_t, 2> left;  // taps
  };
  const Trimmed cases[] = {
      {3, 36, {36, 36, 36, 36}, {1, 1}},  // only the middle
      {3, 14, {14, 14, 14, 14}, {1, 3}},  // of 14 rows, but not of 15 columns
      {5, 9, {18, 18, 18, 18}, {3, 3}},
      {3, 16, {32, 20, 0, 12}, {1, 2}},  // only the last; a border too narrow to leave out
      {2, 20, {20, 0, 0, 20}, {1, 1}}};
  for (const Trimmed& c : cases) {
    for (const std::int64_t groups : {1, 6}) {
      TestGraph b;
      const Graph before =
          b.build({dilated(b, b.input(Shape{2, 6, 14, 15}), c.kernel, c.dilation, c.pads, groups)});
      const Rewritten after = trim_taps(before);
      EXPECT_EQ(after.changes, 1);
      const Window& w = only_window(after.graph);
      EXPECT_EQ(w.kernel[0], c.left[0]) << w.str();
      EXPECT_EQ(w.kernel[1], c.left[1]) << w.str();
      expect_same_outputs(before, after.graph, 1e-6);
    }
  }
}

TEST(TrimTaps, KeepsTapsThatAnyOutputReads) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 6, 14, 15});
  const Graph before = b.build(
      {b.conv("plain", x, 4), dilated(b, x, 3, 13, {13, 13, 13, 13}), dilated(b, x, 3, 4, {0, 0, 0, 0})});
  EXPECT_EQ(trim_taps(before).changes, 0);
}

TEST(TrimTaps, RandomWindows) {
  std::mt19937 random(test::test_seed());
  const auto integer = [&](int low, int high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int changes = 0;
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    TestGraph b;
    ConvAttributes a;
    for (std::size_t d = 0; d < 2; ++d) {
      a.window.kernel[d] = integer(1, 5);
      a.window.dilation[d] = integer(1, 12);
      a.window.stride[d] = integer(1, 4);
      a.window.pad_begin[d] = integer(0, 30);
      a.window.pad_end[d] = integer(0, 30) + a.window.span(static_cast<int>(d));
    }
    const Shape shape{1, 3, integer(1, 9), integer(1, 9)};
    const Graph before = b.build({b.add(
        "conv", Conv(a), {b.input(shape), b.constant(Shape{4, 3, a.window.kernel[0], a.window.kernel[1]})})});
    const Rewritten after = trim_taps(before);
    changes += after.changes;
    SCOPED_TRACE(a.window.str() + " over " + shape.str());
    expect_same_outputs(before, after.graph, 1e-6);
  }
  EXPECT_GT(changes, 10);
}

TEST(TrimTaps, OfQuantizedConvolutions) {
  TestGraph b;
  const Quantization q{0.05F, 100, DType::u8};
  const ValueId x = b.add("q", Quantize(q), {b.input(Shape{1, 5, 14, 14})});
  QConvAttributes a;
  a.x = a.y = q;
  a.weight_scales = {0.01F};
  for (std::size_t d = 0; d < 2; ++d) {
    a.conv.window.kernel[d] = 3;
    a.conv.window.dilation[d] = a.conv.window.pad_begin[d] = a.conv.window.pad_end[d] = 36;
  }
  Tensor weights(TensorDesc{Shape{7, 5, 3, 3}, DType::i8, Layout::row_major});
  for (std::int8_t& w : weights.values<std::int8_t>())
    w = static_cast<std::int8_t>(static_cast<int>(b.random() % 255) - 127);
  const ValueId y = b.add("conv", QConv(a), {x, b.graph.add_constant("w", std::move(weights))});
  const Graph before = b.build({b.add("dq", Dequantize(q), {y})});
  const Rewritten after = trim_taps(before);
  EXPECT_EQ(after.changes, 1);
  const Node& conv = after.graph.nodes().at(1);
  EXPECT_EQ(after.graph.value(conv.inputs[1]).desc.shape.str(), (Shape{7, 5, 1, 1}.str()));
  expect_same_outputs(before, after.graph, 0);
}

}  // namespace
}  // namespace pipit::internal
