// Every rewrite: it fires where it should, not where it must not, and the outputs stay the same.
#include <gmock/gmock.h>

#include <cmath>

#include "layers/arrange.h"
#include "layers/binary.h"
#include "layers/cast.h"
#include "layers/conv.h"
#include "layers/fuse/passes.h"
#include "layers/fuse/rewriter.h"
#include "layers/gemm.h"
#include "layers/matmul.h"
#include "layers/normalization.h"
#include "layers/pool.h"
#include "layers/rearrange.h"
#include "layers/registry.h"
#include "layers/unary.h"
#include "tests/support/run_graph.h"

namespace pipit {
namespace {

using test::random_tensor;

// Rounding: a fold multiplies weights ahead of time, so each product is rounded once more; sums are of at most
// a few hundred terms of either sign.
constexpr double kTolerance = 1e-5;

struct Builder {
  GraphBuilder graph;
  std::mt19937 random{test::test_seed()};
  int constants = 0;

  ValueId input(const Shape& shape) { return graph.add_input("x", TensorDesc{shape}); }
  ValueId constant(const Shape& shape, float low = -1, float high = 1) {
    return graph.add_constant("c" + std::to_string(++constants), random_tensor(shape, random, low, high));
  }
  template <typename L>
  ValueId add(const std::string& name, L layer, std::vector<ValueId> inputs) {
    return graph.add1(name, std::make_shared<L>(std::move(layer)), std::move(inputs));
  }
  ValueId conv(const std::string& name, ValueId x, std::int64_t channels, std::int64_t kernel = 3,
               bool bias = false) {
    ConvAttributes a;
    for (std::size_t d = 0; d < 2; ++d) {
      a.window.kernel[d] = kernel;
      a.window.pad_begin[d] = a.window.pad_end[d] = kernel / 2;
    }
    const std::int64_t in = graph.value(x).desc.shape[1];
    std::vector<ValueId> inputs = {x, constant(Shape{channels, in, kernel, kernel})};
    if (bias) inputs.push_back(constant(Shape{channels}));
    return add(name, Conv(a), inputs);
  }
  ValueId batch_norm(const std::string& name, ValueId x) {
    const Shape c{graph.value(x).desc.shape[1]};
    return add(name, BatchNorm(BatchNormAttributes{}),
               {x, constant(c), constant(c), constant(c), constant(c, 0.5F, 2.0F)});
  }
  ValueId unary(const std::string& name, UnaryKind kind, ValueId x, double alpha = 0, double beta = 0) {
    return add(name, Unary(UnaryAttributes{kind, alpha, beta}), {x});
  }
  ValueId binary(const std::string& name, BinaryKind kind, ValueId a, ValueId b) {
    return add(name, Binary(BinaryAttributes{.kind = kind}), {a, b});
  }
  Graph build(std::vector<ValueId> outputs) {
    for (const ValueId id : outputs) graph.mark_output(id);
    return graph.build();
  }
};

int count(const Graph& graph, std::string_view type) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.layer->type() == type ? 1 : 0;
  return n;
}

void expect_same_outputs(const Graph& before, const Graph& after, double tolerance = kTolerance) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<Tensor> inputs = test::random_inputs(before, random);
  const std::vector<Tensor> expected = test::run_graph(before, default_registry(), inputs, "reference");
  for (const char* kernel : {"reference", ""}) {
    const std::vector<Tensor> got = test::run_graph(after, default_registry(), inputs, kernel);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].shape(), expected[i].shape());
      EXPECT_LE(test::relative_error(got[i].values<float>(), expected[i].values<float>()), tolerance)
          << "output " << i
          << (*kernel == '\0' ? " with the default kernels" : " with the reference kernels");
    }
  }
}

TEST(DropIdentities, RemovesEveryKindOfNothing) {
  Builder b;
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
  Builder b;
  ValueId v = b.input(Shape{2, 3, 4, 4});
  v = b.add("transpose", Transpose(TransposeAttributes{{0, 1, 3, 2}}), {v});  // same shape, other order
  v = b.add("reverse", Slice(SliceAttributes{{-1}, {-100}, {3}, {-1}}), {v});
  v = b.add("shift", Pad(PadAttributes{PadMode::constant, {0, 0, 0, 1}, {0, 0, 0, -1}, 0}), {v});
  const Graph before = b.build({v});
  EXPECT_EQ(drop_identities(before).changes, 0);
}

TEST(DropIdentities, AnIdentityMayBeAnOutput) {
  Builder b;
  const ValueId x = b.input(Shape{2, 3});
  const Graph before = b.build({b.add("id", Reshape(ReshapeAttributes{Shape{2, 3}}), {x})});
  const Rewritten after = drop_identities(before);
  EXPECT_TRUE(after.graph.nodes().empty());
  expect_same_outputs(before, after.graph, 0);
}

TEST(FoldScaleShift, FoldsBatchNormIntoConvolutionsWithAndWithoutBias) {
  for (const bool bias : {false, true}) {
    Builder b;
    const ValueId x = b.input(Shape{2, 5, 7, 6});
    const Graph before = b.build({b.batch_norm("bn", b.conv("conv", x, 9, 3, bias))});
    const Rewritten after = fold_scale_shift(before);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(count(after.graph, "BatchNorm"), 0);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FoldScaleShift, FoldsChainsOfConstantArithmetic) {
  Builder b;
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
  Builder b;
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
    Builder b;
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
  Builder b;
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

TEST(FuseSilu, ReplacesTheProduct) {
  Builder b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const ValueId s = b.unary("sigmoid", UnaryKind::sigmoid, x);
  const Graph before = b.build({b.binary("mul", BinaryKind::mul, x, s)});
  const Rewritten after = fuse_silu(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(after.graph.nodes().size(), 1U);
  expect_same_outputs(before, after.graph);
}

TEST(FuseSilu, NotForAGateOfSomethingElse) {
  Builder b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const ValueId y = b.unary("tanh", UnaryKind::tanh, x);
  const Graph before = b.build({b.binary("mul", BinaryKind::mul, y, b.unary("s", UnaryKind::sigmoid, x))});
  EXPECT_EQ(fuse_silu(before).changes, 0);
}

TEST(FuseGelu, ReplacesBothOrdersOfTheProduct) {
  for (const bool half_first : {false, true}) {
    Builder b;
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
    const Rewritten after = fuse_gelu(before);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(after.graph.nodes().size(), 1U);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FuseGelu, NotForOtherNumbersOrArguments) {
  for (const int wrong : {0, 1, 2, 3}) {
    Builder b;
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
    EXPECT_EQ(fuse_gelu(before).changes, 0) << wrong;
  }
}

TEST(FuseResidual, TakesTheLaterOfTwoConvolutions) {
  Builder b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  const ValueId early = b.conv("early", x, 4);
  const ValueId late = b.conv("late", b.unary("relu", UnaryKind::relu, x), 4, 1, true);
  const Graph before = b.build({b.binary("add", BinaryKind::add, late, early)});
  const Rewritten after = fuse_residual(before);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count(after.graph, "Binary"), 0);
  EXPECT_EQ(after.graph.nodes().back().name, "late");
  EXPECT_EQ(after.graph.nodes().back().inputs.size(), 4U);
  expect_same_outputs(before, after.graph);
}

TEST(FuseResidual, ChainsOfAddsTakeOneResidualEach) {
  Builder b;
  const ValueId x = b.input(Shape{1, 4, 5, 5});
  const ValueId c1 = b.conv("c1", x, 4);
  const ValueId s = b.binary("add1", BinaryKind::add, c1, x);
  const ValueId t = b.binary("add2", BinaryKind::add, s, x);  // c1 already has a residual
  const Graph before = b.build({t});
  const Rewritten after = fuse_residual(before);
  EXPECT_EQ(after.changes, 1);
  expect_same_outputs(before, after.graph);
}

TEST(FuseResidual, NotWhenBroadcastOrReadElsewhere) {
  Builder b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  const ValueId c1 = b.conv("c1", x, 4);
  const ValueId broadcast = b.binary("b", BinaryKind::add, c1, b.constant(Shape{2, 1, 5, 5}));
  const ValueId c2 = b.conv("c2", x, 4);
  const ValueId read_twice = b.binary("r", BinaryKind::add, c2, x);
  const ValueId doubled = b.binary("d", BinaryKind::add, broadcast, broadcast);
  const Graph before = b.build({doubled, read_twice, c2});
  EXPECT_EQ(fuse_residual(before).changes, 0);
}

TEST(FuseActivation, MovesReluAndClipIntoTheEpilogue) {
  Builder b;
  const ValueId x = b.input(Shape{2, 4, 5, 5});
  ValueId v = b.unary("relu", UnaryKind::relu, b.conv("conv", x, 4));
  v = b.unary("clip", UnaryKind::clip, b.binary("add", BinaryKind::add, v, x), -0.5, 0.5);
  const Graph before = b.build({v});
  const Rewritten after = fuse_activation(before);
  EXPECT_EQ(after.changes, 2);
  EXPECT_EQ(count(after.graph, "Unary"), 0);
  expect_same_outputs(before, after.graph);
}

TEST(FuseActivation, NotOnIntermediateOutputsNorTwice) {
  Builder b;
  const ValueId x = b.input(Shape{1, 4, 5, 5});
  const ValueId c = b.conv("conv", x, 4);
  const ValueId r = b.unary("relu", UnaryKind::relu, c);
  const ValueId a =
      b.unary("again", UnaryKind::clip, b.unary("first", UnaryKind::relu, b.conv("c2", x, 4)), 0.1, 0.2);
  const Graph before = b.build({c, r, a});
  const Rewritten after = fuse_activation(before);
  EXPECT_EQ(after.changes, 1);  // only "first"
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, ConvertsOnlyAtTheBoundaries) {
  Builder b;
  const ValueId x = b.input(Shape{2, 3, 8, 8});
  ValueId v = b.conv("c1", x, 8);
  v = b.unary("relu", UnaryKind::relu, v);
  v = b.conv("c2", v, 8);
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, 8}}), {v});
  const Graph before = b.build({v});
  const Rewritten after = assign_layouts(before);
  EXPECT_EQ(count(after.graph, "ToLayout"), 1);  // before flatten; a view, since H = W = 1
  for (const Node& node : after.graph.nodes()) {
    if (node.layer->type() == "Conv" || node.layer->type() == "Unary") {
      EXPECT_EQ(after.graph.value(node.outputs[0]).desc.layout, Layout::channels_last) << node.name;
    }
  }
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, ImageOutputsAreRowMajor) {
  Builder b;
  const ValueId c = b.conv("c", b.input(Shape{1, 3, 4, 4}), 5);
  const Graph before = b.build({c});
  const Rewritten after = assign_layouts(before);
  EXPECT_EQ(after.graph.value(after.graph.outputs()[0]).desc.layout, Layout::row_major);
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, TransposesAroundNhwcBlocksMoveNothing) {
  // ConvNeXt: NCHW -> NHWC, layer norm and linear over channels, back.
  Builder b;
  ValueId v = b.conv("c", b.input(Shape{2, 3, 6, 5}), 8);
  v = b.add("to nhwc", Transpose(TransposeAttributes{{0, 2, 3, 1}}), {v});
  v = b.add("ln", LayerNorm(LayerNormAttributes{}), {v, b.constant(Shape{8}), b.constant(Shape{8})});
  v = b.add("mm", MatMul(), {v, b.constant(Shape{8, 8})});
  v = b.add("to nchw", Transpose(TransposeAttributes{{0, 3, 1, 2}}), {v});
  v = b.conv("c2", v, 4);
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  const Graph before = b.build({v});
  const Rewritten after = assign_layouts(before);
  PlanOptions options;
  options.threads = 1;
  const auto plan = Plan::build(after.graph, default_registry(), options);
  for (const Step& step : plan->steps()) {
    const auto type = plan->graph().nodes()[static_cast<std::size_t>(step.node)].layer->type();
    EXPECT_NE(type, "Transpose");
    EXPECT_NE(type, "ToLayout");
  }
  expect_same_outputs(before, after.graph);
}

TEST(Optimize, OutputsKeepTheirNames) {
  Builder b;
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
  Builder b;
  const ValueId x = b.input(Shape{2, 8, 6, 6});
  ValueId v = b.unary("relu1", UnaryKind::relu, b.batch_norm("bn1", b.conv("conv1", x, 8)));
  v = b.batch_norm("bn2", b.conv("conv2", v, 8));
  const ValueId shortcut = b.batch_norm("bn3", b.conv("conv3", x, 8, 1));
  v = b.unary("relu2", UnaryKind::relu, b.binary("add", BinaryKind::add, v, shortcut));
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  const Graph before = b.build({v});
  std::vector<PassReport> report;
  const Graph after = optimize(before, &report);
  EXPECT_EQ(count(after, "Conv"), 3);
  EXPECT_EQ(count(after, "BatchNorm") + count(after, "Unary") + count(after, "Binary"), 0);
  EXPECT_EQ(report.size(), 9U);
  expect_same_outputs(before, after, 5e-5);
}

// A classifier: convolution, global average, Gemm. `other_readers` of the image and of the scores.
Graph small_classifier(bool other_readers) {
  Builder b;
  const ValueId x = b.input(Shape{2, 3, 9, 9});
  const ValueId c = b.conv("conv", x, 8);
  ValueId v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {c});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, 8}}), {v});
  v = b.add("scores", Gemm(GemmAttributes{}), {v, b.constant(Shape{8, 5}), b.constant(Shape{5})});
  b.graph.mark_output(v, "scores");
  if (other_readers) {
    b.graph.mark_output(b.unary("relu", UnaryKind::relu, v), "rectified");
    b.graph.mark_output(b.unary("negated", UnaryKind::neg, x), "negated");
  }
  return optimize(b.graph.build());
}

const TensorDesc& output_of(const Graph& graph, std::string_view type) {
  for (const Node& node : graph.nodes()) {
    if (node.layer->type() == type) return graph.value(node.outputs[0]).desc;
  }
  throw Error("no such node");
}

TEST(AssignPrecision, ConvertsAtTheBorders) {
  const Rewritten after = assign_precision(small_classifier(false), Precision::fp16, DeviceKind::cpu);
  EXPECT_EQ(count(after.graph, "Cast"), 2);
  EXPECT_EQ(output_of(after.graph, "Gemm").dtype, DType::f16);
  EXPECT_EQ(after.graph.value(after.graph.outputs()[0]).desc.dtype, DType::f32);
}

TEST(AssignPrecision, AGpusFirstConvolutionAndLastGemmConvertThemselves) {
  const Rewritten after = assign_precision(small_classifier(false), Precision::fp16, DeviceKind::cuda);
  EXPECT_EQ(count(after.graph, "Cast"), 0);
  EXPECT_EQ(after.changes, 0);
  EXPECT_EQ(after.graph.value(after.graph.inputs()[0]).desc.dtype, DType::f32);
  EXPECT_EQ(output_of(after.graph, "Conv").dtype, DType::f16);
  EXPECT_EQ(output_of(after.graph, "Gemm").dtype, DType::f32);
  EXPECT_EQ(after.graph.output_names()[0], "scores");
}

TEST(AssignPrecision, OtherReadersNeedTheConversions) {
  const Rewritten after = assign_precision(small_classifier(true), Precision::fp16, DeviceKind::cuda);
  EXPECT_EQ(count(after.graph, "Cast"), 1 + 3);  // the image, and three outputs
  EXPECT_EQ(output_of(after.graph, "Gemm").dtype, DType::f16);
}

TEST(AssignPrecision, Fp32ChangesNothing) {
  const Rewritten after = assign_precision(small_classifier(true), Precision::fp32, DeviceKind::cuda);
  EXPECT_EQ(count(after.graph, "Cast"), 0);
}

}  // namespace
}  // namespace pipit
