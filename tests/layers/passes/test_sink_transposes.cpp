// Transposes between what is written in NHWC order and convolutions.
#include <gtest/gtest.h>

#include <functional>

#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

struct Nhwc : TestGraph {
  ValueId last(ValueId x) { return add("last", Transpose(TransposeAttributes{{0, 2, 3, 1}}), {x}); }
  ValueId first(ValueId x) { return add("first", Transpose(TransposeAttributes{{0, 3, 1, 2}}), {x}); }
  // A convolution of NHWC data, with the batch normalization that follows it written out.
  ValueId layer(ValueId x, std::int64_t channels, std::int64_t kernel = 1) {
    ValueId y = last(conv("conv", first(x), channels, kernel));
    y = binary("sub", BinaryKind::sub, y, constant(Shape{channels}));
    y = binary("mul", BinaryKind::mul, y, constant(Shape{channels}));
    return binary("add", BinaryKind::add, constant(Shape{1, 1, 1, channels}), y);
  }
};

TEST(SinkTransposes, ArithmeticMeetsTheConvolution) {
  Nhwc b;
  ValueId v = b.layer(b.input(Shape{2, 6, 5, 3}), 4, 3);
  v = b.unary("relu", UnaryKind::relu, v);
  v = b.layer(v, 7);
  const Graph before = b.build({v});
  const Rewritten after = sink_transposes(before);
  EXPECT_EQ(count_type(after.graph, "Transpose"), 2);  // of the input and of the output
  expect_same_outputs(before, after.graph);
  const Graph folded = fold_scale_shift(after.graph).graph;
  EXPECT_EQ(count_type(folded, "Binary"), 0);
  expect_same_outputs(before, folded);
}

// As MobileNet v3 has it: a residual that is read twice, a gate from a mean that keeps its dimensions.
TEST(SinkTransposes, PastResidualsAndGates) {
  Nhwc b;
  const ValueId start = b.unary("swish", UnaryKind::hard_swish, b.layer(b.input(Shape{1, 8, 8, 3}), 6, 3));
  ValueId v = b.unary("relu", UnaryKind::relu, b.layer(start, 6, 3));
  ValueId gate = b.add("mean", Reduce({ReduceKind::mean, {1, 2}, true}), {v});
  gate = b.unary("gate", UnaryKind::hard_sigmoid, b.layer(gate, 6), 0.2, 0.5);
  v = b.layer(b.binary("scale", BinaryKind::mul, gate, v), 6);
  v = b.binary("residual", BinaryKind::add, start, v);
  v = b.add("join", Concat({3}), {v, b.layer(v, 5)});
  v = b.add("pad", Pad({PadMode::constant, {0, 1, 0, 0}, {0, 0, 2, 0}, 0}), {v});
  v = b.unary("relu", UnaryKind::relu, b.layer(v, 4, 3));
  v = b.add("average", Reduce({ReduceKind::mean, {-3, -2}, false}), {v});
  const Graph before = b.build({v});
  const Rewritten after = sink_transposes(before);
  EXPECT_EQ(count_type(after.graph, "Transpose"), 1);  // of the input
  expect_same_outputs(before, after.graph);
  const Graph folded = fold_scale_shift(after.graph).graph;
  EXPECT_EQ(count_type(folded, "Binary"), 2);  // the gate's product, the residual's sum
  expect_same_outputs(before, folded);
}

TEST(SinkTransposes, GatesOfAnotherOrigin) {
  Nhwc b;
  const ValueId x = b.input(Shape{2, 8, 6, 3});
  const ValueId v = b.layer(x, 6);
  ValueId gate = b.add("max", Reduce({ReduceKind::max, {1, 2}, true}), {x});
  gate = b.add("wide", Concat({3}), {gate, gate});
  const Graph before = b.build({b.first(b.binary("scale", BinaryKind::mul, v, gate))});
  const Rewritten after = sink_transposes(before);
  EXPECT_EQ(count_type(after.graph, "Transpose"), 2);  // of the input, of the small gate
  expect_same_outputs(before, after.graph);
}

TEST(SinkTransposes, PaddingMovesToTheConvolution) {
  Nhwc b;
  const ValueId padded =
      b.add("pad", Pad({PadMode::constant, {0, 1, 2, 0}, {0, 3, 0, 0}, 0}), {b.input(Shape{1, 6, 5, 3})});
  const Graph before = b.build({b.conv("conv", b.first(padded), 4)});
  const Rewritten after = sink_transposes(before);
  expect_same_outputs(before, after.graph);
  EXPECT_EQ(fold_padding(after.graph).changes, 1);
}

TEST(SinkTransposes, ReshapesOfSingleExtentsNeedNone) {
  Nhwc b;
  const ValueId v = b.last(b.conv("conv", b.input(Shape{2, 5, 1, 1}), 7));
  const Graph before = b.build({b.add("flat", Reshape({Shape{2, 7}}), {v})});
  const Rewritten after = sink_transposes(before);
  EXPECT_EQ(count_type(after.graph, "Transpose"), 0);
  expect_same_outputs(before, after.graph);
}

// Axes and extents that all differ, so that a wrong turn is seen.
TEST(SinkTransposes, EveryLayerThatItPasses) {
  const std::function<ValueId(Nhwc&, ValueId)> layers[] = {
      [](Nhwc& b, ValueId x) {
        return b.add("softmax", Softmax({2, false, false}), {x});
      },
      [](Nhwc& b, ValueId x) {
        return b.add("sum", Reduce({ReduceKind::sum, {-1, 0}, true}), {x});
      },
      [](Nhwc& b, ValueId x) {
        return b.add("all", Reduce({ReduceKind::sum, {}, true}), {x});
      },
      [](Nhwc& b, ValueId x) {
        return b.add("edge", Pad({PadMode::edge, {0, 1, 0, 2}, {1, 0, 3, 0}, 0}), {x});
      },
      [](Nhwc& b, ValueId x) {
        return b.binary("wide", BinaryKind::max, b.constant(Shape{3, 1}), x);
      },
      [](Nhwc& b, ValueId x) { return b.binary("twice", BinaryKind::mul, x, x); },
      [](Nhwc& b, ValueId x) {
        return b.add("concat", Concat({-2}), {x, x});
      },
      [](Nhwc& b, ValueId x) {
        const Quantization q{0.02F, 7, DType::i8};
        return b.add("dq", Dequantize(q), {b.add("q", Quantize(q), {x})});
      }};
  int i = 0;
  for (const auto& layer : layers) {
    for (const bool cancels : {false, true}) {
      SCOPED_TRACE(testing::Message() << "layer " << i << (cancels ? " before the inverse" : ""));
      Nhwc b;
      const std::vector<std::int64_t> turn{3, 0, 2, 1};
      const std::vector<std::int64_t> back{1, 3, 2, 0};
      ValueId v = b.add("turn", Transpose({turn}), {b.input(Shape{2, 4, 3, 5})});
      v = layer(b, v);
      if (cancels) v = b.add("back", Transpose({back}), {v});
      const Graph before = b.build({v});
      const Rewritten after = sink_transposes(before);
      EXPECT_EQ(count_type(after.graph, "Transpose"), cancels ? 0 : 1);
      expect_same_outputs(before, after.graph, 1e-6);
    }
    ++i;
  }
}

TEST(SinkTransposes, IntegersAreMovedRatherThanWhatTheyStandFor) {
  Nhwc b;
  const Quantization q{0.02F, 7, DType::i8};
  ValueId v = b.last(b.input(Shape{2, 5, 4, 3}));
  v = b.add("dq", Dequantize(q), {b.add("q", Quantize(q), {v})});
  const Graph before = b.build({v});
  const Rewritten after = sink_transposes(before);
  ASSERT_EQ(after.graph.nodes().size(), 3U);
  EXPECT_EQ(after.graph.nodes()[1].layer->type(), "Transpose");
  expect_same_outputs(before, after.graph, 0);
}

TEST(SinkTransposes, NotWhereItWouldBeMadeTwiceForNothing) {
  Nhwc b;
  const ValueId x = b.last(b.input(Shape{2, 5, 4, 3}));
  const Graph before = b.build({b.unary("relu", UnaryKind::relu, x), b.unary("abs", UnaryKind::abs, x)});
  const Rewritten after = sink_transposes(before);
  EXPECT_EQ(count_type(after.graph, "Transpose"), 1);
  expect_same_outputs(before, after.graph, 0);
}

}  // namespace
}  // namespace pipit::internal
