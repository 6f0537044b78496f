// Every fusion: it fires where it should, not where it must not, and the outputs stay the same.
#include <gmock/gmock.h>

#include <cmath>

#include "layers/ops/cast.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/rewriter.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

TEST(DropIdentities, RemovesEveryKindOfNothing) {
  TestGraph b;
  const Shape s{2, 3, 4, 5};
  ValueId v = b.input(s);
  v = b.add("reshape", Reshape(ReshapeAttributes{s}), {v});
  v = b.add("cast", Cast(CastAttributes{DType::f32}), {v});
  v = b.add("pad", Pad(PadAttributes{PadMode::constant, {0, 0, 0, 0}, {0, 0, 0, 0}, 0}), {v});
  v = b.add("slice", Slice(SliceAttributes{{0}, {100}, {1}, {1}}), {v});
  v = b.add("transpose", Transpose(TransposeAttributes{{0, 1, 2, 3}}), {v});
  v = b.add("concat", Concat(ConcatAttributes{1}), {v});
  v = b.unary("relu", UnaryKind::relu, v);
  const Graph before = b.build({v});
  const Rewritten after = drop_identities(before);
  EXPECT_EQ(after.changes, 6);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph, 0);
}

TEST(DropIdentities, KeepsWhatChangesSomething) {
  TestGraph b;
  ValueId v = b.input(Shape{2, 3, 4, 4});
  v = b.add("transpose", Transpose(TransposeAttributes{{0, 1, 3, 2}}), {v});  // same shape, other order
  v = b.add("reverse", Slice(SliceAttributes{{-1}, {-100}, {3}, {-1}}), {v});
  v = b.add("shift", Pad(PadAttributes{PadMode::constant, {0, 0, 0, 1}, {0, 0, 0, -1}, 0}), {v});
  const Graph before = b.build({v});
  EXPECT_EQ(drop_identities(before).changes, 0);
}

TEST(DropIdentities, AnIdentityMayBeAnOutput) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 3});
  const Graph before = b.build({b.add("id", Reshape(ReshapeAttributes{Shape{2, 3}}), {x})});
  const Rewritten after = drop_identities(before);
  EXPECT_TRUE(after.graph.nodes().empty());
  expect_same_outputs(before, after.graph, 0);
}

TEST(FoldScaleShift, FoldsBatchNormIntoConvolutionsWithAndWithoutBias) {
  for (const bool bias : {false, true}) {
    TestGraph b;
    const ValueId x = b.input(Shape{2, 5, 7, 6});
    const Graph before = b.build({b.batch_norm("bn", b.conv("conv", x, 9, 3, bias))});
    const Rewritten after = fold_scale_shift(before);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(count_type(after.graph, "BatchNorm"), 0);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FoldScaleShift, FoldsChainsOfConstantArithmetic) {
  TestGraph b;
  ValueId v = b.conv("conv", b.input(Shape{1, 4, 5, 5}), 6);
  v = b.binary("add", BinaryKind::add, v, b.constant(Shape{1, 6, 1, 1}));
  v = b.binary("mul", BinaryKind::mul, b.constant(Shape{6, 1, 1}), v);
  v = b.binary("div", BinaryKind::div, v, b.constant(Shape{}, 1.0F, 2.0F));
  v = b.binary("sub", BinaryKind::sub, b.constant(Shape{1}), v);  // constant - y
  v = b.batch_norm("bn", v);
  const Graph before = b.build({v});
  const Rewritten after = fold_scale_shift(before);
  EXPECT_EQ(after.changes, 5);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph);
}

TEST(FoldScaleShift, LongChainsFoldInOneVisit) {
  TestGraph b;
  ValueId v = b.conv("conv", b.input(Shape{1, 2, 3, 3}), 2);
  for (int i = 0; i < 2000; ++i) {
    v = b.binary("mul" + std::to_string(i), BinaryKind::mul, v, b.constant(Shape{2, 1, 1}, 0.99F, 1.01F));
  }
  const Graph before = b.build({v});
  const Rewritten after = fold_scale_shift(before);
  EXPECT_EQ(after.changes, 2000);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph, 2000 * 6e-8);
}

TEST(FoldScaleShift, FoldsIntoGemmOfEitherOrientation) {
  for (const bool transposed : {false, true}) {
    TestGraph b;
    const ValueId x = b.input(Shape{3, 8});
    GemmAttributes a;
    a.transpose_b = transposed;
    a.alpha = 0.5F;
    a.beta = 2.0F;
    ValueId v =
        b.add("fc", Gemm(a), {x, b.constant(transposed ? Shape{5, 8} : Shape{8, 5}), b.constant(Shape{5})});
    v = b.binary("scale", BinaryKind::mul, v, b.constant(Shape{5}));
    v = b.batch_norm("bn", v);
    const Graph before = b.build({v});
    const Rewritten after = fold_scale_shift(before);
    EXPECT_EQ(after.changes, 2);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FoldScaleShift, LeavesAloneWhatItMustNotTouch) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 4, 4});
  const ValueId read_twice = b.conv("twice", x, 4);
  const ValueId bn = b.batch_norm("bn", read_twice);
  const ValueId wide = b.binary("wide", BinaryKind::mul, b.conv("c2", x, 4), b.constant(Shape{1, 1, 1, 4}));
  const ValueId grown =
      b.binary("grown", BinaryKind::add, b.conv("c3", x, 4), b.constant(Shape{2, 1, 1, 1, 1}));
  const ValueId zero = b.graph.add_constant("zero", Tensor::scalar(0.0F));
  const ValueId divided = b.binary("by zero", BinaryKind::div, b.conv("c4", x, 4), zero);
  const ValueId over = b.binary("over", BinaryKind::div, b.constant(Shape{4, 1, 1}), b.conv("c5", x, 4));
  const Graph before = b.build({read_twice, bn, wide, grown, divided, over});
  EXPECT_EQ(fold_scale_shift(before).changes, 0);
}

TEST(JoinScaleShift, ArithmeticPerChannelIsOneLayer) {
  TestGraph b;
  const Shape shape{2, 6, 5, 4};
  ValueId v = b.unary("abs", UnaryKind::abs, b.input(shape));
  v = b.binary("sub", BinaryKind::sub, v, b.constant(Shape{1, 6, 1, 1}));
  v = b.binary("mul", BinaryKind::mul, b.constant(Shape{6, 1, 1}), v);
  v = b.binary("add", BinaryKind::add, v, b.constant(Shape{1}));
  v = b.unary("relu", UnaryKind::relu, v);
  const Graph before = b.build({v});
  const Rewritten after = fold_scale_shift(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count_type(after.graph, "Conv"), 1);
  EXPECT_EQ(after.graph.nodes().size(), 3U);
  expect_same_outputs(before, after.graph);
}

TEST(JoinScaleShift, ABatchNormOfAnImageIsADepthwiseConvolution) {
  TestGraph b;
  const ValueId x = b.unary("abs", UnaryKind::abs, b.input(Shape{2, 6, 5, 4}));
  const ValueId bn = b.batch_norm("bn", x);
  const Graph before = b.build({b.unary("relu", UnaryKind::relu, bn)});
  const Rewritten after = fold_scale_shift(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count_type(after.graph, "Conv"), 1);
  expect_same_outputs(before, after.graph);
  const Rewritten fused = fuse_epilogues(after.graph);
  EXPECT_EQ(fused.graph.nodes().size(), 2U);
  expect_same_outputs(before, fused.graph);
}

TEST(JoinScaleShift, OtherBatchNormsStay) {
  TestGraph b;
  const ValueId image = b.batch_norm("image", b.input(Shape{2, 3, 5, 4}));
  const ValueId rows = b.batch_norm("rows", b.unary("abs", UnaryKind::abs, b.input(Shape{2, 6})));
  const Quantization i8{0.05F, 0, DType::i8};
  const ValueId integers = b.add("quantize", Quantize(i8), {b.input(Shape{2, 6, 5, 4})});
  const ValueId real = b.batch_norm("real", b.add("dequantize", Dequantize(i8), {integers}));
  const ValueId input = b.batch_norm("of an input", b.input(Shape{2, 6, 5, 4}));
  const Rewritten after = fold_scale_shift(b.build({image, rows, real, input}));
  EXPECT_EQ(after.changes, 0);
  EXPECT_EQ(count_type(after.graph, "BatchNorm"), 4);
}

TEST(JoinScaleShift, TakesTheArithmeticBehindABatchNorm) {
  TestGraph b;
  ValueId v = b.batch_norm("bn", b.input(Shape{2, 6, 5, 4}));
  v = b.binary("mul", BinaryKind::mul, v, b.constant(Shape{6, 1, 1}));
  const Graph before = b.build({v});
  const Rewritten after = fold_scale_shift(before);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph);
}

TEST(JoinScaleShift, NotOneLayerNorScalarsNorWhatIsReadTwice) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 6, 5, 4});
  const ValueId one = b.binary("one", BinaryKind::mul, x, b.constant(Shape{6, 1, 1}));
  const ValueId scalars = b.binary(
      "s2", BinaryKind::add, b.binary("s1", BinaryKind::mul, x, b.constant(Shape{1})), b.constant(Shape{}));
  const ValueId twice = b.binary("t2", BinaryKind::add, one, b.constant(Shape{6, 1, 1}));
  const ValueId wide =
      b.binary("w2", BinaryKind::add, b.binary("w1", BinaryKind::mul, x, b.constant(Shape{4})),
               b.constant(Shape{5, 1}));
  EXPECT_EQ(fold_scale_shift(b.build({one, scalars, twice, wide})).changes, 0);
}

TEST(FuseSilu, ReplacesTheProduct) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const ValueId s = b.unary("sigmoid", UnaryKind::sigmoid, x);
  const Graph before = b.build({b.binary("mul", BinaryKind::mul, x, s)});
  const Rewritten after = fuse_activations_written_out(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph);
}

// QuickGelu written out, with either order of the operands and with a quotient.
TEST(FuseSilu, ReplacesTheProductWithAScaledGate) {
  for (const bool divides : {false, true}) {
    for (const bool swapped : {false, true}) {
      TestGraph b;
      const ValueId x = b.input(Shape{1, 4, 3, 3});
      const ValueId c = b.graph.add_constant("c", Tensor::scalar(divides ? 0.5875F : 1.702F));
      const ValueId scaled = b.binary("scaled", divides ? BinaryKind::div : BinaryKind::mul,
                                      swapped && !divides ? c : x, swapped && !divides ? x : c);
      const ValueId gate = b.unary("sigmoid", UnaryKind::sigmoid, scaled);
      const Graph before =
          b.build({b.binary("mul", BinaryKind::mul, swapped ? gate : x, swapped ? x : gate)});
      const Rewritten after = fuse_activations_written_out(before);
      ASSERT_EQ(after.graph.nodes().size(), 1U);
      EXPECT_NEAR(layer_if<Unary>(after.graph.nodes()[0])->attributes().alpha, 1.702, 1e-3);
      expect_same_outputs(before, after.graph);
    }
  }
}

TEST(FuseSilu, NotForAGateOfAnotherScaleOrRank) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const auto gated = [&](const std::string& name, ValueId factor) {
    const ValueId scaled = b.binary(name + ".scaled", BinaryKind::mul, x, factor);
    return b.binary(name, BinaryKind::mul, b.unary(name + ".gate", UnaryKind::sigmoid, scaled), x);
  };
  const ValueId channels = gated("channels", b.constant(Shape{4, 1, 1}));
  const ValueId rank = gated("rank", b.constant(Shape{1, 1, 1, 1, 1}));
  const ValueId over = b.binary("over", BinaryKind::div, b.constant(Shape{}), x);
  const Graph before =
      b.build({channels, rank, b.binary("mul", BinaryKind::mul, b.unary("s", UnaryKind::sigmoid, over), x)});
  EXPECT_EQ(fuse_activations_written_out(before).changes, 0);
}

TEST(FuseSilu, NotForAGateOfSomethingElse) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const ValueId y = b.unary("tanh", UnaryKind::tanh, x);
  const Graph before = b.build({b.binary("mul", BinaryKind::mul, y, b.unary("s", UnaryKind::sigmoid, x))});
  EXPECT_EQ(fuse_activations_written_out(before).changes, 0);
}

TEST(FuseGelu, ReplacesBothOrdersOfTheProduct) {
  for (const bool half_first : {false, true}) {
    TestGraph b;
    const ValueId x = b.input(Shape{1, 4, 3, 3});
    const auto number = [&](float value) {
      return b.graph.add_constant("c" + std::to_string(++b.constants), Tensor::scalar(value));
    };
    const ValueId scaled = half_first ? b.binary("scaled", BinaryKind::mul, number(std::sqrt(0.5F)), x)
                                      : b.binary("scaled", BinaryKind::div, x, number(std::sqrt(2.0F)));
    const ValueId erf = b.unary("erf", UnaryKind::erf, scaled);
    const ValueId sum = b.binary("sum", BinaryKind::add, erf, number(1));
    const ValueId y =
        half_first ? b.binary("y", BinaryKind::mul, b.binary("h", BinaryKind::mul, x, number(0.5F)), sum)
                   : b.binary("y", BinaryKind::mul, b.binary("p", BinaryKind::mul, x, sum), number(0.5F));
    const Graph before = b.build({y});
    const Rewritten after = fuse_activations_written_out(before);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(after.graph.nodes().size(), 1U);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FuseGelu, NotForOtherNumbersOrArguments) {
  for (const int wrong : {0, 1, 2, 3}) {
    TestGraph b;
    const ValueId x = b.input(Shape{1, 4, 3, 3});
    const auto number = [&](float value) {
      return b.graph.add_constant("c" + std::to_string(++b.constants), Tensor::scalar(value));
    };
    const ValueId scaled =
        b.binary("scaled", BinaryKind::div, x, number(wrong == 0 ? 1.5F : std::sqrt(2.0F)));
    const ValueId sum = b.binary("sum", BinaryKind::add, b.unary("erf", UnaryKind::erf, scaled),
                                 number(wrong == 1 ? 2.0F : 1.0F));
    const ValueId other = wrong == 2 ? b.unary("abs", UnaryKind::abs, x) : x;
    const Graph before = b.build({b.binary("y", BinaryKind::mul, b.binary("p", BinaryKind::mul, other, sum),
                                           number(wrong == 3 ? 0.25F : 0.5F))});
    EXPECT_EQ(fuse_activations_written_out(before).changes, 0) << wrong;
  }
}

TEST(FuseResidual, TakesTheLaterOfTwoConvolutions) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  const ValueId early = b.conv("early", x, 4);
  const ValueId late = b.conv("late", b.unary("relu", UnaryKind::relu, x), 4, 1, true);
  const Graph before = b.build({b.binary("add", BinaryKind::add, late, early)});
  const Rewritten after = fuse_epilogues(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count_type(after.graph, "Binary"), 0);
  EXPECT_EQ(after.graph.nodes().back().name, "late");
  EXPECT_EQ(after.graph.nodes().back().inputs.size(), 4U);
  expect_same_outputs(before, after.graph);
}

TEST(FuseResidual, ChainsOfAddsTakeOneResidualEach) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 5, 5});
  const ValueId c1 = b.conv("c1", x, 4);
  const ValueId s = b.binary("add1", BinaryKind::add, c1, x);
  const ValueId t = b.binary("add2", BinaryKind::add, s, x);  // c1 already has a residual
  const Graph before = b.build({t});
  const Rewritten after = fuse_epilogues(before);
  EXPECT_EQ(after.changes, 1);
  expect_same_outputs(before, after.graph);
}

TEST(FuseResidual, NotWhenBroadcastOrReadElsewhere) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  const ValueId c1 = b.conv("c1", x, 4);
  const ValueId broadcast = b.binary("b", BinaryKind::add, c1, b.constant(Shape{2, 1, 5, 5}));
  const ValueId c2 = b.conv("c2", x, 4);
  const ValueId read_twice = b.binary("r", BinaryKind::add, c2, x);
  const ValueId doubled = b.binary("d", BinaryKind::add, broadcast, broadcast);
  const Graph before = b.build({doubled, read_twice, c2});
  EXPECT_EQ(fuse_epilogues(before).changes, 0);
}

TEST(FuseActivation, MovesReluAndClipIntoTheEpilogue) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  ValueId v = b.unary("relu", UnaryKind::relu, b.conv("conv", x, 4));
  v = b.unary("clip", UnaryKind::clip, b.binary("add", BinaryKind::add, v, x), -0.5, 0.5);
  const Graph before = b.build({v});
  const Rewritten after = fuse_epilogues(before);
  EXPECT_EQ(after.changes, 2);
  EXPECT_EQ(count_type(after.graph, "Unary"), 0);
  expect_same_outputs(before, after.graph);
}

TEST(FuseActivation, NotOnIntermediateOutputsNorTwice) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 4, 5, 5});
  const ValueId c = b.conv("conv", x, 4);
  const ValueId r = b.unary("relu", UnaryKind::relu, c);
  const ValueId a =
      b.unary("again", UnaryKind::clip, b.unary("first", UnaryKind::relu, b.conv("c2", x, 4)), 0.1, 0.2);
  const Graph before = b.build({c, r, a});
  const Rewritten after = fuse_epilogues(before);
  EXPECT_EQ(after.changes, 1);  // only "first"
  expect_same_outputs(before, after.graph);
}

TEST(Optimize, OutputsKeepTheirNames) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 3, 4, 4});
  const ValueId c = b.conv("c", x, 5);
  b.graph.mark_output(c, "image");  // converted to row_major
  b.graph.mark_output(b.add("id", Reshape(ReshapeAttributes{Shape{1, 3, 4, 4}}), {x}), "same");  // dropped
  b.graph.mark_output(b.unary("relu", UnaryKind::relu, b.conv("c2", x, 2)), "fused");
  b.graph.mark_output(c, "again");
  const Graph after = optimize(b.graph.build());
  EXPECT_THAT(after.output_names(), testing::ElementsAre("image", "same", "fused", "again"));
}

TEST(Optimize, AResidualBlockBecomesItsConvolutions) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 8, 6, 6});
  ValueId v = b.unary("relu1", UnaryKind::relu, b.batch_norm("bn1", b.conv("conv1", x, 8)));
  v = b.batch_norm("bn2", b.conv("conv2", v, 8));
  const ValueId shortcut = b.batch_norm("bn3", b.conv("conv3", x, 8, 1));
  v = b.unary("relu2", UnaryKind::relu, b.binary("add", BinaryKind::add, v, shortcut));
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  const Graph before = b.build({v});
  std::vector<PassReport> report;
  const Graph after = optimize(before, {}, &report);
  EXPECT_EQ(count_type(after, "Conv"), 3);
  EXPECT_EQ(count_type(after, "BatchNorm") + count_type(after, "Unary") + count_type(after, "Binary"), 0);
  EXPECT_EQ(report.size(), 17U);  // all but those for quantized models, a GPU and halves
  expect_same_outputs(before, after, 5e-5);
}

}  // namespace
}  // namespace pipit::internal
