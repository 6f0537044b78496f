// A float graph that computes in INT8 with scales of its own finding.
#include "quant/dynamic_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/ops/binary.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::random_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ValueId add_conv(GraphBuilder& graph, std::mt19937& random, const std::string& name, ValueId x,
                 std::int64_t outputs, std::int64_t kernel, std::int64_t groups = 1,
                 ValueId residual = kNoValue) {
  ConvAttributes a;
  a.groups = groups;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    a.window.kernel[axis] = kernel;
    a.window.pad_begin[axis] = a.window.pad_end[axis] = kernel / 2;
  }
  const std::int64_t in = graph.value(x).desc.shape[1] / groups;
  return graph.add1(name, std::make_shared<Conv>(a),
                    {x,
                     graph.add_constant(
                         name + ".w", random_tensor(Shape{outputs, in, kernel, kernel}, random, -0.3F, 0.3F)),
                     graph.add_constant(name + ".b", random_tensor(Shape{outputs}, random)), residual},
                    name);
}

// A stem, two convolutions of one input, a depthwise one, an activation after a convolution, a classifier.
Graph small_network(std::mt19937& random, std::int64_t batch) {
  GraphBuilder graph;
  ValueId x = graph.add_input("image", TensorDesc{Shape{batch, 3, 12, 12}});
  x = add_conv(graph, random, "stem", x, 16, 3);
  const ValueId left = add_conv(graph, random, "left", x, 16, 1);
  x = add_conv(graph, random, "right", x, 16, 3, 1, left);
  x = graph.add1("silu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::silu, 0, 0}), {x}, "silu");
  x = add_conv(graph, random, "depthwise", x, 16, 3, 16);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  x = graph.add1("gap", std::make_shared<Pool>(average), {x}, "gap");
  x = graph.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{batch, 16}}), {x}, "flat");
  GemmAttributes gemm;
  gemm.activation = Clamp::relu();
  x = graph.add1("fc", std::make_shared<Gemm>(gemm),
                 {x, graph.add_constant("fc.w", random_tensor(Shape{16, 10}, random)), kNoValue}, "scores");
  graph.mark_output(x);
  return graph.build();
}

TEST(QuantizeDynamically, TakesConvolutionsAndClassifiersButNotDepthwise) {
  std::mt19937 random(test::test_seed());
  const Rewritten q = quantize_dynamically(small_network(random, 1), {});
  EXPECT_EQ(q.changes, 4);
  std::vector<std::string> types;
  for (const Node& node : q.graph.nodes()) types.emplace_back(node.layer->type());
  // left and right share their input's integers.
  EXPECT_THAT(types, ElementsAre("DynamicQuantize", "DynamicQConv", "DynamicQuantize", "DynamicQConv",
                                 "DynamicQConv", "Unary", "Conv", "Pool", "Reshape", "DynamicQuantize",
                                 "Reshape", "DynamicQConv", "Reshape"));
  // The first convolution reads the planes of the image.
  const Graph laid_out = assign_layouts(q.graph).graph;
  EXPECT_EQ(laid_out.nodes()[0].layer->type(), "DynamicQuantize");
  EXPECT_EQ(laid_out.nodes()[1].layer->type(), "DynamicQConv");
}

TEST(QuantizeDynamically, AnswersLikeTheFloatGraph) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Graph graph = small_network(random, 2);
  const auto inputs = test::random_inputs(graph, random);
  const auto real = test::run_graph(assign_layouts(graph).graph, default_registry(), inputs);
  for (const bool per_sample : {true, false}) {
    const Graph q = assign_layouts(quantize_dynamically(graph, {per_sample}).graph).graph;
    const auto y = test::run_graph(q, default_registry(), inputs);
    // 7 bits and a sign per tensor: about 1 % a layer.
    EXPECT_LT(test::relative_error(y[0].values<float>(), real[0].values<float>()), 0.08);
    const auto same = test::run_graph(q, default_registry(), inputs, {}, 3);
    EXPECT_THAT(same[0].values<float>(), testing::ElementsAreArray(y[0].values<float>()));
    const auto plain = test::run_graph(q, default_registry(), inputs, "reference");
    EXPECT_LT(test::relative_error(y[0].values<float>(), plain[0].values<float>()), 0.02);
  }
}

// What --dynamic-scales per-sample promises.
TEST(QuantizeDynamically, PerSampleAnswersDoNotDependOnTheBatch) {
  const unsigned seed = test::test_seed();
  std::mt19937 random(seed);
  const Graph pair = assign_layouts(quantize_dynamically(small_network(random, 2), {true}).graph).graph;
  random.seed(seed);
  const Graph single = assign_layouts(quantize_dynamically(small_network(random, 1), {true}).graph).graph;
  const Tensor images = random_tensor(Shape{2, 3, 12, 12}, random);
  std::vector<Tensor> both;
  both.push_back(images.clone());
  for (float& x : both[0].values<float>().subspan(432)) x *= 100;  // loud company
  const auto y = test::run_graph(pair, default_registry(), both);
  std::vector<Tensor> one;
  one.push_back(Tensor::from<float>(Shape{1, 3, 12, 12}, images.values<float>().subspan(0, 432)));
  const auto alone = test::run_graph(single, default_registry(), one);
  EXPECT_THAT(y[0].values<float>().subspan(0, 10), testing::ElementsAreArray(alone[0].values<float>()));
}

TEST(QuantizeDynamically, RefusesWeightsThatAreNotFinite) {
  GraphBuilder graph;
  const ValueId x = graph.add_input("x", TensorDesc{Shape{1, 2}});
  const std::vector<float> w{1, NAN};
  graph.mark_output(graph.add1("fc", std::make_shared<MatMul>(),
                               {x, graph.add_constant("w", Tensor::from<float>(Shape{2, 1}, w))}, "y"));
  EXPECT_THAT([&] { quantize_dynamically(graph.build(), {}); }, ThrowsMessage<Error>(HasSubstr("'fc'")));
}

}  // namespace
}  // namespace pipit::internal
