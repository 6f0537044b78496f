// The last rewrites: the layout and the stored type of every value.
#include <gmock/gmock.h>

#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/pipeline.h"
#include "tests/layers/values.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

TEST(AssignLayouts, ConvertsOnlyAtTheBoundaries) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 3, 8, 8});
  ValueId v = b.conv("c1", x, 8);
  v = b.unary("relu", UnaryKind::relu, v);
  v = b.conv("c2", v, 8);
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, 8}}), {v});
  const Graph before = b.build({v});
  const Rewritten after = assign_layouts(before);
  EXPECT_EQ(count_type(after.graph, "ToLayout"), 1);  // before flatten; a view, since H = W = 1
  for (const Node& node : after.graph.nodes()) {
    if (node.layer->type() == "Conv" || node.layer->type() == "Unary") {
      EXPECT_EQ(after.graph.value(node.outputs[0]).desc.layout, Layout::channels_last) << node.name;
    }
  }
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, ImageOutputsAreRowMajor) {
  TestGraph b;
  const ValueId c = b.conv("c", b.input(Shape{1, 3, 4, 4}), 5);
  const Graph before = b.build({c});
  const Rewritten after = assign_layouts(before);
  EXPECT_EQ(after.graph.value(after.graph.outputs()[0]).desc.layout, Layout::row_major);
  expect_same_outputs(before, after.graph);
}

// The extents of what ToLayout turns.
std::vector<Shape> turned(const Graph& graph) {
  std::vector<Shape> shapes;
  for (const Node& node : graph.nodes()) {
    if (node.layer->type() == "ToLayout") shapes.push_back(graph.value(node.outputs[0]).desc.shape);
  }
  return shapes;
}

TEST(AssignLayouts, AtTheEndsTheSmallerValueIsTurned) {
  TestGraph b;
  const Shape small{1, 8, 4, 4};
  const ValueId x = b.add("first", Tile({{1, 1, 2, 2}}), {b.input(small)});
  const ValueId y = b.conv("c", x, 8);
  const Graph before =
      b.build({b.add("last", Tile({{1, 2, 3, 1}}), {b.add("slice", Slice({{0}, {4}, {3}, {1}}), {y})})});
  const Rewritten after = assign_layouts(before);
  EXPECT_THAT(turned(after.graph), testing::ElementsAre(small, Shape{1, 8, 8, 4}));
  expect_same_outputs(before, after.graph);
}

std::vector<DType> turned_types(const Graph& graph) {
  std::vector<DType> types;
  for (const Node& node : graph.nodes()) {
    if (node.layer->type() == "ToLayout") types.push_back(graph.value(node.outputs[0]).desc.dtype);
  }
  return types;
}

// At an output, and where a Reshape reads.
TEST(AssignLayouts, WhatIsDequantizedLastIsTurnedAsIntegers) {
  const Quantization q{0.02F, 100, DType::u8, false};
  for (const bool reshapes : {false, true}) {
    TestGraph b;
    ValueId v = b.add("quantize", Quantize(q), {b.conv("c", b.input(Shape{1, 3, 4, 4}), 5)});
    v = b.add("repeat", Tile({{1, 1, 2, 1}}), {v});
    v = b.unary("sigmoid", UnaryKind::sigmoid, b.add("dequantize", Dequantize(q), {v}));
    if (reshapes) v = b.add("flatten", Reshape(ReshapeAttributes{Shape{1, 160}}), {v});
    const Graph before = b.build({v});
    const Rewritten after = assign_layouts(before);
    EXPECT_THAT(turned(after.graph), testing::ElementsAre(Shape{1, 5, 4, 4}));
    EXPECT_THAT(turned_types(after.graph), testing::ElementsAre(DType::u8));
    expect_same_outputs(before, after.graph);
  }
}

TEST(AssignLayouts, WhatTwoReadIsTurnedWhereItMustBe) {
  const Quantization q{0.02F, 100, DType::u8, false};
  TestGraph b;
  ValueId v = b.add("quantize", Quantize(q), {b.conv("c", b.input(Shape{1, 3, 4, 4}), 5)});
  v = b.add("dequantize", Dequantize(q), {v});
  const Graph before = b.build({v, b.conv("c2", v, 4)});
  const Rewritten after = assign_layouts(before);
  EXPECT_THAT(turned_types(after.graph), testing::ElementsAre(DType::f32, DType::f32)) << "both outputs";
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, LastChannelsArePickedAsPlanes) {
  TestGraph b;
  const ValueId two = b.graph.add_constant("two", test::make<std::int64_t>({3, 0, 2, 1}));
  const ValueId v = b.add("pick", Gather({1}), {b.conv("c", b.input(Shape{1, 3, 4, 4}), 4), two});
  const Graph before = b.build({v});
  const Rewritten after = assign_layouts(before);
  const Node& last = after.graph.nodes().back();
  EXPECT_EQ(last.layer->type(), "Gather");
  EXPECT_EQ(after.graph.value(last.inputs[0]).desc.layout, Layout::row_major);
  expect_same_outputs(before, after.graph);
}

// They do for values other than the user's image: one tap, few channels, many outputs, and no other reader.
TEST(AssignLayouts, PointwiseConvolutionsReadPlanesOfFewChannels) {
  const auto turns = [](std::int64_t channels, std::int64_t outputs, std::int64_t kernel, bool twice) {
    TestGraph b;
    const ValueId x = b.unary("abs", UnaryKind::abs, b.input(Shape{1, channels, 5, 7}));
    std::vector<ValueId> made{b.conv("c", x, outputs, kernel)};
    if (twice) made.push_back(x);
    const Graph before = b.build(made);
    const Rewritten after = assign_layouts(before);
    expect_same_outputs(before, after.graph);
    return turned(after.graph).size() - 1;  // that of the result
  };
  EXPECT_EQ(turns(40, 20, 1, false), 0U);
  EXPECT_EQ(turns(64, 16, 1, false), 0U);
  EXPECT_EQ(turns(65, 16, 1, false), 1U);
  EXPECT_EQ(turns(40, 15, 1, false), 1U);
  EXPECT_EQ(turns(40, 20, 3, false), 1U);
  EXPECT_EQ(turns(40, 20, 1, true), 1U);
}

TEST(AssignLayouts, ReductionsThatDropDimensionsReadWhatThereIs) {
  TestGraph b;
  const ValueId x = b.conv("c", b.input(Shape{1, 3, 6, 4}), 5);
  const ValueId one = b.graph.add_constant("one", Tensor::scalar(std::int64_t{1}));
  const ValueId arg = b.add("arg", ArgMax({.axis = 1, .keep_dims = false}), {x});
  const Graph before =
      b.build({b.add("real", Cast({DType::f32}), {arg}), b.add("pick", Gather({1}), {x, one}),
               b.add("max", Reduce({ReduceKind::max, {2}, false}), {x})});
  const Rewritten after = assign_layouts(before);
  EXPECT_THAT(turned(after.graph), testing::ElementsAre());
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, OneChannelAGroupReadsChannelsLast) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 8, 6, 4});
  const Graph before = b.build({b.add("depthwise", Conv({.groups = 8}), {x, b.constant(Shape{8, 1, 1, 1})})});
  const Rewritten after = assign_layouts(before);
  EXPECT_EQ(turned(after.graph).size(), 2U);
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, OperandsOfOneOrder) {
  TestGraph b;
  const Shape shape{1, 8, 4, 6};
  const ValueId x = b.input(shape);
  const ValueId gate = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::max, .global = true}), {x});
  const ValueId gated =
      b.binary("gated", BinaryKind::mul, x, gate);  // the image of one pixel has both orders
  const Graph before = b.build({b.binary("sum", BinaryKind::add, b.conv("c", x, 8), gated), gated});
  const Rewritten after = assign_layouts(before);
  EXPECT_THAT(turned(after.graph), testing::ElementsAre(shape, shape, shape))
      << "for the pool, the sum, its result";
  expect_same_outputs(before, after.graph);
}

TEST(AssignLayouts, TransposesAroundNhwcBlocksMoveNothing) {
  // ConvNeXt: NCHW -> NHWC, layer norm and linear over channels, back.
  TestGraph b;
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
  const auto plan = ExecutionPlan::build(after.graph, default_registry(), options);
  for (const Step& step : plan->steps()) {
    const auto type = plan->graph().nodes()[static_cast<std::size_t>(step.node)].layer->type();
    EXPECT_NE(type, "Transpose");
    EXPECT_NE(type, "ToLayout");
  }
  expect_same_outputs(before, after.graph);
}

// A classifier: convolution, global average, Gemm. `other_readers` of the image and of the scores.
Graph small_classifier(bool other_readers) {
  TestGraph b;
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
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    const Rewritten after = assign_precision(small_classifier(false), precision, DeviceKind::cpu);
    EXPECT_EQ(count_type(after.graph, "Cast"), 2);
    EXPECT_EQ(output_of(after.graph, "Gemm").dtype, stored_type(precision));
    EXPECT_EQ(after.graph.value(after.graph.outputs()[0]).desc.dtype, DType::f32);
  }
}

TEST(AssignPrecision, AGpusFirstConvolutionAndLastGemmConvertThemselves) {
  const Rewritten after = assign_precision(small_classifier(false), Precision::fp16, DeviceKind::cuda);
  EXPECT_EQ(count_type(after.graph, "Cast"), 0);
  EXPECT_EQ(after.changes, 0);
  EXPECT_EQ(after.graph.value(after.graph.inputs()[0]).desc.dtype, DType::f32);
  EXPECT_EQ(output_of(after.graph, "Conv").dtype, DType::f16);
  EXPECT_EQ(output_of(after.graph, "Gemm").dtype, DType::f32);
  EXPECT_EQ(after.graph.output_names()[0], "scores");
}

TEST(AssignPrecision, OtherReadersNeedTheConversions) {
  const Rewritten after = assign_precision(small_classifier(true), Precision::fp16, DeviceKind::cuda);
  EXPECT_EQ(count_type(after.graph, "Cast"), 1 + 3);  // the image, and three outputs
  EXPECT_EQ(output_of(after.graph, "Gemm").dtype, DType::f16);
}

TEST(AssignPrecision, Fp32ChangesNothing) {
  const Rewritten after = assign_precision(small_classifier(true), Precision::fp32, DeviceKind::cuda);
  EXPECT_EQ(count_type(after.graph, "Cast"), 0);
}

}  // namespace
}  // namespace pipit::internal
