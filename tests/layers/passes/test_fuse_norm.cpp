// Layer normalization and Gelu written out, and what moves after Transposes: found in every form, left alone where it
// is something else.
#include <gmock/gmock.h>

#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/pipeline.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

using Axes = std::vector<std::int64_t>;

ValueId number(TestGraph& b, float value) {
  return b.graph.add_constant("n" + std::to_string(++b.constants), Tensor::scalar(value));
}

ValueId mean(TestGraph& b, ValueId x, const Axes& axes, bool as_sum = false) {
  if (!as_sum) return b.add("mean", Reduce({ReduceKind::mean, axes, true}), {x});
  const ValueId sum = b.add("sum", Reduce({ReduceKind::sum, axes, true}), {x});
  const std::int64_t count = b.graph.value(x).desc.elements() / b.graph.value(sum).desc.elements();
  return b.binary("mean", BinaryKind::div, sum, number(b, static_cast<float>(count)));
}

// How exporters write (x - mean) / sqrt(variance + epsilon).
enum class Square { pow, mul };
enum class Root { div_sqrt, mul_reciprocal, div_pow, mul_pow, mul_one_over };
struct Form {
  Square square = Square::pow;
  Root root = Root::div_sqrt;
  bool sums = false;
  bool twice = false;  // the difference is computed once more for the square
  bool rms = false;    // of x itself instead of the difference
};

ValueId normalized(TestGraph& b, ValueId x, const Axes& axes, const Form& form = {}) {
  const ValueId d = form.rms ? x : b.binary("d", BinaryKind::sub, x, mean(b, x, axes, form.sums));
  const ValueId e = form.twice ? b.binary("e", BinaryKind::sub, x, mean(b, x, axes)) : d;
  const ValueId square = form.square == Square::pow ? b.unary("sq", UnaryKind::pow, e, 2)
                                                    : b.binary("sq", BinaryKind::mul, e, e);
  const ValueId v = b.binary("v", BinaryKind::add, mean(b, square, axes, form.sums), number(b, 1e-5F));
  const ValueId root = b.unary("sqrt", UnaryKind::sqrt, v);
  switch (form.root) {
    case Root::div_sqrt:
      return b.binary("y", BinaryKind::div, d, root);
    case Root::mul_reciprocal:
      return b.binary("y", BinaryKind::mul, b.unary("r", UnaryKind::reciprocal, root), d);
    case Root::div_pow:
      return b.binary("y", BinaryKind::div, d, b.unary("p", UnaryKind::pow, v, 0.5));
    case Root::mul_pow:
      return b.binary("y", BinaryKind::mul, d, b.unary("p", UnaryKind::pow, v, -0.5));
    case Root::mul_one_over:
      return b.binary("y", BinaryKind::mul, d, b.binary("o", BinaryKind::div, number(b, 1), root));
  }
  return kNoValue;
}

TEST(FuseLayerNorm, EveryFormBecomesOneLayer) {
  for (const Square square : {Square::pow, Square::mul}) {
    for (const Root root :
         {Root::div_sqrt, Root::mul_reciprocal, Root::div_pow, Root::mul_pow, Root::mul_one_over}) {
      for (const bool sums : {false, true}) {
        TestGraph b;
        const ValueId x = b.input(Shape{2, 5, 3, 7});
        ValueId y = normalized(b, x, {-1}, {square, root, sums, !sums});
        y = b.binary("scale", BinaryKind::mul, y, b.constant(Shape{7}));
        y = b.binary("bias", BinaryKind::add, b.constant(Shape{7}), y);
        const Graph before = b.build({y});
        const Rewritten after = fuse_layer_norm(before);
        EXPECT_EQ(after.changes, 1);
        EXPECT_EQ(after.graph.nodes().size(), 1U);
        EXPECT_EQ(count_type(after.graph, "LayerNorm"), 1);
        expect_same_outputs(before, after.graph);
      }
    }
  }
}

// x / sqrt(mean(x^2) + epsilon) is a normalization by the root mean square, over any dimensions but the first.
TEST(FuseLayerNorm, RootMeanSquare) {
  for (const Root root :
       {Root::div_sqrt, Root::mul_reciprocal, Root::div_pow, Root::mul_pow, Root::mul_one_over}) {
    for (const Axes& axes : {Axes{-1}, Axes{1}, Axes{2, 3}}) {
      TestGraph b;
      const ValueId x = b.input(Shape{2, 7, 3, 7});
      ValueId y = normalized(b, x, axes, {Square::mul, root, false, false, true});
      y = b.binary("scale", BinaryKind::mul, b.constant(axes[0] == 1 ? Shape{7, 1, 1} : Shape{7}), y);
      const Graph before = b.build({y});
      const Rewritten after = fuse_layer_norm(before);
      EXPECT_EQ(after.changes, 1);
      EXPECT_EQ(count_type(after.graph, "LayerNorm"), 1);
      EXPECT_EQ(count_type(after.graph, "Binary"), 0);
      EXPECT_EQ(count_type(after.graph, "Transpose"), axes[0] == 1 ? 2 : 0);
      for (const Node& node : after.graph.nodes()) {
        const auto* norm = layer_if<LayerNorm>(node);
        EXPECT_TRUE(norm == nullptr || norm->attributes().rms);
      }
      expect_same_outputs(before, after.graph);
    }
  }
  // Samples stay apart, and another tensor than the squared one is no normalization.
  for (const bool other : {false, true}) {
    TestGraph b;
    const ValueId x = b.input(Shape{4, 8}), z = b.input(Shape{4, 8});
    const ValueId square = b.binary("sq", BinaryKind::mul, x, x);
    const ValueId v = b.binary("v", BinaryKind::add, mean(b, square, {other ? 1 : 0}), number(b, 1e-5F));
    const ValueId y = b.binary("y", BinaryKind::div, other ? z : x, b.unary("sqrt", UnaryKind::sqrt, v));
    EXPECT_EQ(fuse_layer_norm(b.build({y})).changes, 0);
  }
}

// Channels first (LayerNorm2d), dimensions that are no neighbours, several last ones.
TEST(FuseLayerNorm, AnyDimensionsButTheFirst) {
  struct Normalized {
    Shape x;
    Axes axes;
    Shape parameters;
    int transposes;
  };
  const Normalized cases[] = {{{2, 6, 3, 4}, {1}, {6, 1, 1}, 2},
                              {{2, 6, 3, 4}, {1}, {1, 6, 1, 1}, 2},
                              {{2, 6, 3, 4}, {-1, 1}, {6, 1, 4}, 2},
                              {{2, 6, 3, 4}, {2, 3}, {3, 4}, 0},
                              {{2, 6, 9}, {1}, {6, 1}, 2},
                              {{2, 6, 9}, {2}, {9}, 0},
                              {{4, 8}, {1}, {8}, 0},
                              {{2, 3, 4, 5}, {1, 2, 3}, {}, 0},
                              {{2, 3, 4, 5}, {1, 2, 3}, {3, 1, 5}, 0}};
  for (const Normalized& c : cases) {
    SCOPED_TRACE(testing::Message() << c.x.str() << " axis " << c.axes[0]);
    TestGraph b;
    ValueId y = normalized(b, b.input(c.x), c.axes);
    y = b.binary("scale", BinaryKind::mul, y, b.constant(c.parameters));
    y = b.binary("bias", BinaryKind::add, y, b.constant(c.parameters));
    const Graph before = b.build({y});
    const Rewritten after = fuse_layer_norm(before);
    EXPECT_EQ(count_type(after.graph, "LayerNorm"), 1);
    EXPECT_EQ(count_type(after.graph, "Binary"), 0);
    EXPECT_EQ(count_type(after.graph, "Transpose"), c.transposes);
    expect_same_outputs(before, after.graph);
  }
}

TEST(FuseLayerNorm, SpatialDimensionsWithParametersPerChannelAreAnInstanceNorm) {
  for (const bool parameters : {false, true}) {
    TestGraph b;
    ValueId y = normalized(b, b.input(Shape{2, 6, 5, 4}), {2, 3});
    if (parameters) {
      y = b.binary("scale", BinaryKind::mul, y, b.constant(Shape{6, 1, 1}));
      y = b.binary("bias", BinaryKind::add, y, b.constant(Shape{1, 6, 1, 1}));
    }
    const Graph before = b.build({y});
    const Rewritten after = fuse_layer_norm(before);
    EXPECT_EQ(count_type(after.graph, "InstanceNorm"), 1);
    EXPECT_EQ(after.graph.nodes().size(), 1U);
    expect_same_outputs(before, after.graph);
  }
}

// x * k + (bias - mean * k) with k = scale / deviation.
TEST(FuseLayerNorm, TheFormOfTensorFlow) {
  for (const bool channels : {false, true}) {
    for (const bool scaled : {false, true}) {
      TestGraph b;
      const Axes axes = channels ? Axes{2, 3} : Axes{3};
      const Shape parameters = channels ? Shape{6, 1, 1} : Shape{4};
      const ValueId x = b.input(Shape{2, 6, 5, 4});
      const ValueId m = mean(b, x, axes);
      const ValueId d = b.binary("d", BinaryKind::sub, x, m);
      const ValueId variance = mean(b, b.binary("sq", BinaryKind::mul, d, d), axes);
      const ValueId v = b.binary("v", BinaryKind::add, variance, number(b, 1e-3F));
      ValueId k = b.unary("r", UnaryKind::reciprocal, b.unary("s", UnaryKind::sqrt, v));
      if (scaled) k = b.binary("k", BinaryKind::mul, k, b.constant(parameters));
      const ValueId shift =
          b.binary("shift", BinaryKind::sub, b.constant(parameters), b.binary("mk", BinaryKind::mul, m, k));
      const Graph before =
          b.build({b.binary("y", BinaryKind::add, b.binary("xk", BinaryKind::mul, x, k), shift)});
      const Rewritten after = fuse_layer_norm(before);
      EXPECT_EQ(after.graph.nodes().size(), 1U);
      EXPECT_EQ(count_type(after.graph, channels ? "InstanceNorm" : "LayerNorm"), 1);
      expect_same_outputs(before, after.graph);
    }
  }
}

TEST(FuseLayerNorm, ParametersThatDoNotFitStayBehindIt) {
  TestGraph b;
  ValueId y = normalized(b, b.input(Shape{2, 5, 3, 7}), {-1});
  y = b.binary("scale", BinaryKind::mul, y, b.constant(Shape{3, 1}));
  const Graph before = b.build({y});
  const Rewritten after = fuse_layer_norm(before);
  EXPECT_EQ(count_type(after.graph, "LayerNorm"), 1);
  EXPECT_EQ(count_type(after.graph, "Binary"), 1);
  expect_same_outputs(before, after.graph);
}

TEST(FuseLayerNorm, LeavesAloneWhatIsSomethingElse) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 5, 3, 7});
  std::vector<ValueId> outputs;
  outputs.push_back(normalized(b, x, {0, 2, 3}));  // mixes samples
  const auto finish = [&](ValueId d, ValueId variance) {
    const ValueId v = b.binary("v", BinaryKind::add, variance, number(b, 1e-5F));
    outputs.push_back(b.binary("y", BinaryKind::div, d, b.unary("s", UnaryKind::sqrt, v)));
  };
  const ValueId d = b.binary("d", BinaryKind::sub, x, mean(b, x, {-1}));
  finish(d, mean(b, b.unary("cube", UnaryKind::pow, d, 3), {-1}));  // no square
  finish(d, mean(b, b.unary("sq", UnaryKind::pow, d, 2), {0}));     // other dimensions
  finish(d, mean(b, b.unary("sq", UnaryKind::pow, x, 2), {-1}));    // of x, not of the difference
  finish(x, mean(b, b.unary("sq", UnaryKind::pow, d, 2), {-1}));    // x over its deviation
  const ValueId sum =
      b.add("sum", Reduce({ReduceKind::sum, {-1}, true}), {b.unary("sq", UnaryKind::pow, d, 2)});
  finish(d, b.binary("unbiased", BinaryKind::div, sum, number(b, 6)));  // n - 1 terms
  const Graph before = b.build(outputs);
  EXPECT_EQ(fuse_layer_norm(before).changes, 0);
}

TEST(FuseGelu, TheApproximationWithTanh) {
  for (const bool cube_by_pow : {false, true}) {
    for (const bool half_first : {false, true}) {
      TestGraph b;
      const ValueId x = b.input(Shape{2, 3, 4, 5});
      const ValueId cube = cube_by_pow
                               ? b.unary("cube", UnaryKind::pow, x, 3)
                               : b.binary("cube", BinaryKind::mul, b.binary("sq", BinaryKind::mul, x, x), x);
      const ValueId inner =
          b.binary("inner", BinaryKind::add, x, b.binary("k", BinaryKind::mul, cube, number(b, 0.044715F)));
      const ValueId t =
          b.unary("tanh", UnaryKind::tanh, b.binary("s", BinaryKind::mul, number(b, 0.7978845608F), inner));
      const ValueId one = b.binary("one", BinaryKind::add, t, number(b, 1));
      const ValueId y =
          half_first
              ? b.binary("y", BinaryKind::mul, b.binary("h", BinaryKind::mul, x, number(b, 0.5F)), one)
              : b.binary("y", BinaryKind::mul, x, b.binary("h", BinaryKind::mul, number(b, 0.5F), one));
      const Graph before = b.build({y});
      const Rewritten after = fuse_activations_written_out(before);
      EXPECT_EQ(after.changes, 1);
      ASSERT_EQ(after.graph.nodes().size(), 1U);
      EXPECT_EQ(after.graph.nodes()[0].layer->summary(), "gelu_tanh");
      expect_same_outputs(before, after.graph);
    }
  }
}

// The argument of tanh as Flax multiplies it, as a cheaper form (x * k * (1 + 0.044715 x x)), and with another factor.
TEST(FuseGelu, ThePolynomialInAnyOrder) {
  for (const int form : {0, 1, 2}) {
    TestGraph b;
    const ValueId x = b.input(Shape{2, 3, 4, 5});
    const float factor = form == 2 ? 0.05F : 0.044715F;
    const ValueId square =
        b.binary("sq", BinaryKind::mul, x, b.binary("k", BinaryKind::mul, number(b, factor), x));
    const ValueId root = number(b, 0.7978845608F);
    const ValueId argument =
        form == 1 ? b.binary("a", BinaryKind::mul, b.binary("s", BinaryKind::mul, x, root),
                             b.binary("p", BinaryKind::add, number(b, 1), square))
                  : b.binary("a", BinaryKind::mul, root,
                             b.binary("p", BinaryKind::add, x, b.binary("c", BinaryKind::mul, x, square)));
    const ValueId one =
        b.binary("one", BinaryKind::add, number(b, 1), b.unary("tanh", UnaryKind::tanh, argument));
    const Graph before =
        b.build({b.binary("y", BinaryKind::mul, x, b.binary("h", BinaryKind::mul, number(b, 0.5F), one))});
    const Rewritten after = fuse_activations_written_out(before);
    EXPECT_EQ(after.changes, form == 2 ? 0 : 1);
    expect_same_outputs(before, after.graph);
  }
}

ValueId transposed(TestGraph& b, ValueId x, const Axes& permutation) {
  return b.add("transpose", Transpose(TransposeAttributes{permutation}), {x});
}

TEST(SinkTransposes, TheyMeetTheirInversesBehindElementwiseLayers) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 5, 3, 7});
  ValueId y = transposed(b, x, {0, 2, 3, 1});
  y = b.unary("relu", UnaryKind::relu, y);
  y = b.binary("a", BinaryKind::add, y, b.constant(Shape{5}));
  y = b.binary("s", BinaryKind::sub, b.constant(Shape{7, 1}), y);
  y = b.binary("m", BinaryKind::mul, y, b.constant(Shape{2, 3, 1, 5}));
  y = b.binary("h", BinaryKind::mul, y, number(b, 0.5F));
  const Graph before = b.build({transposed(b, y, {0, 3, 1, 2})});
  const Rewritten after = sink_transposes(Graph(before));
  EXPECT_EQ(count_type(after.graph, "Transpose"), 0);
  EXPECT_EQ(after.graph.nodes().size(), 5U);
  expect_same_outputs(before, after.graph, 0);
}

TEST(SinkTransposes, TwoOperandsOfOneOrder) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 5, 3, 7});
  const ValueId p = transposed(b, b.unary("relu", UnaryKind::relu, x), {0, 2, 3, 1});
  const ValueId q = transposed(b, b.unary("abs", UnaryKind::abs, x), {0, 2, 3, 1});
  const Graph before = b.build({transposed(b, b.binary("add", BinaryKind::add, p, q), {0, 3, 1, 2})});
  const Rewritten after = sink_transposes(Graph(before));
  EXPECT_EQ(count_type(after.graph, "Transpose"), 0);
  expect_same_outputs(before, after.graph, 0);
}

TEST(SinkTransposes, WhatIsReadTwiceOrBroadcastIsMadeOnce) {
  TestGraph b;
  const ValueId x = b.input(Shape{2, 5, 3, 7});
  const ValueId t = transposed(b, x, {0, 2, 3, 1});
  const ValueId other = transposed(b, b.unary("abs", UnaryKind::abs, x), {0, 3, 2, 1});
  const ValueId grown =
      b.binary("grown", BinaryKind::add, transposed(b, x, {0, 2, 1, 3}), b.constant(Shape{2, 1, 1, 1, 1}));
  const Graph before = b.build({b.unary("relu", UnaryKind::relu, t), b.unary("neg", UnaryKind::neg, t), t,
                                transposed(b, other, {1, 0, 2, 3}), grown});
  const Rewritten after = sink_transposes(Graph(before));
  EXPECT_EQ(count_type(after.graph, "Transpose"), 3) << "one for t, one for both together, one for grown";
  expect_same_outputs(before, after.graph, 0);
}

// A block of ConvNeXt as PyTorch writes it.
TEST(SinkTransposes, AConvNeXtBlockIsConvolutionsAndOneNormalization) {
  TestGraph b;
  constexpr std::int64_t kChannels = 12;
  const ValueId x = b.input(Shape{2, kChannels, 5, 6});
  ValueId y = transposed(b, b.conv("dw", x, kChannels), {0, 2, 3, 1});
  y = normalized(b, y, {-1});
  y = b.binary("g", BinaryKind::mul, y, b.constant(Shape{kChannels}));
  y = b.binary("b", BinaryKind::add, y, b.constant(Shape{kChannels}));
  y = b.add("fc1", MatMul(), {y, b.constant(Shape{kChannels, 20})});
  y = b.binary("b1", BinaryKind::add, b.constant(Shape{20}), y);
  const ValueId erf =
      b.unary("erf", UnaryKind::erf, b.binary("d", BinaryKind::div, y, number(b, 1.41421354F)));
  y = b.binary("h", BinaryKind::mul,
               b.binary("p", BinaryKind::mul, y, b.binary("o", BinaryKind::add, erf, number(b, 1))),
               number(b, 0.5F));
  y = b.add("fc2", MatMul(), {y, b.constant(Shape{20, kChannels})});
  y = b.binary("b2", BinaryKind::add, b.constant(Shape{kChannels}), y);
  y = b.binary("gamma", BinaryKind::mul, b.constant(Shape{kChannels, 1, 1}), transposed(b, y, {0, 3, 1, 2}));
  const Graph before = b.build({b.binary("sum", BinaryKind::add, y, x)});
  const Graph after = fuse(Graph(before));
  std::vector<std::string> types;
  for (const Node& node : after.nodes()) types.emplace_back(node.layer->type());
  EXPECT_THAT(types,
              testing::ElementsAre("Conv", "Transpose", "LayerNorm", "Transpose", "Conv", "Unary", "Conv"));
  EXPECT_EQ(after.nodes().back().inputs.size(), 4U) << "the last convolution adds x";
  expect_same_outputs(before, optimize(Graph(before)));
}

// As PyTorch exports it, scale and bias by channel after it.
TEST(FuseGroupNorm, BetweenReshapes) {
  for (const std::int64_t groups : {1, 3, 6}) {
    TestGraph b;
    const ValueId x = b.input(Shape{2, 6, 4, 3});
    const auto norm = [&](const std::string& name, ValueId from, const Shape& apart, const Shape& together) {
      const Shape c{apart[1]};
      const ValueId y = b.add(name, InstanceNorm(InstanceNormAttributes{0.01F}),
                              {b.add(name + "/a", Reshape({apart}), {from}), b.constant(c), b.constant(c)});
      return b.add(name + "/b", Reshape({together}), {y});
    };
    const Shape same{2, 6, 4, 3};
    ValueId y = norm("norm", b.conv("conv", x, 6), Shape{2, groups, 72 / groups}, same);
    y = b.binary("scaled", BinaryKind::mul, y, b.constant(Shape{6, 1, 1}));
    y = b.unary("relu", UnaryKind::relu, b.binary("shifted", BinaryKind::add, y, b.constant(Shape{6, 1, 1})));
    const ValueId other = norm("samples", y, Shape{4, 3, 12}, same);  // of half a sample each
    const ValueId moved = norm("moved", x, Shape{2, 3, 24}, Shape{2, 4, 6, 3});
    const Graph before = b.build({b.conv("last", y, 4), other, moved});
    const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
    EXPECT_EQ(after.changes, 1);
    EXPECT_EQ(count_type(after.graph, "Reshape"), 4);
    expect_same_outputs(before, after.graph);
    const Graph optimized = optimize(before);
    EXPECT_EQ(count_type(optimized, "Reshape"), 4);
    expect_same_outputs(before, optimized);
  }
}

// In a quantized model Reshapes are those of integers.
TEST(FuseGroupNorm, BetweenReshapesOfIntegers) {
  TestGraph b;
  const Quantization q{0.02F, 7, DType::u8, false};
  const ValueId x = b.add("q", Quantize(q), {b.input(Shape{2, 6, 4, 3})});
  const ValueId real = b.add("real", Dequantize(q), {b.add("a", Reshape({Shape{2, 3, 24}}), {x})});
  const ValueId norm = b.add("norm", InstanceNorm(InstanceNormAttributes{0.01F}),
                             {real, b.constant(Shape{3}), b.constant(Shape{3})});
  const ValueId y = b.add("b", Reshape({Shape{2, 6, 4, 3}}), {b.add("qn", Quantize(q), {norm})});
  const Graph before = b.build({b.add("out", Dequantize(q), {y})});
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count_type(after.graph, "Reshape"), 0);
  EXPECT_EQ(count_type(after.graph, "Quantize"), 2);
  expect_same_outputs(before, after.graph);
}

// Where every channel is a group, a Reshape between two is what one of them ends in and the other begins with.
TEST(FuseGroupNorm, OneAfterTheOther) {
  TestGraph b;
  const Shape flat{1, 4, 9}, image{1, 4, 3, 3}, c{4};
  const auto reshape = [&](const std::string& name, ValueId x, const Shape& to) {
    return b.add(name, Reshape({to}), {x});
  };
  const auto norm = [&](const std::string& name, ValueId x) {
    return b.add(name, InstanceNorm(InstanceNormAttributes{0.01F}), {x, b.constant(c), b.constant(c)});
  };
  const ValueId first = norm("first", reshape("a", b.input(image), flat));
  const ValueId second = norm("second", reshape("b", first, image));
  const Graph before = b.build({reshape("c", second, flat)});
  const Rewritten after = fuse_channel_groups(before, DeviceKind::cpu);
  EXPECT_EQ(after.changes, 1);
  expect_same_outputs(before, after.graph);
}

}  // namespace
}  // namespace pipit::internal
