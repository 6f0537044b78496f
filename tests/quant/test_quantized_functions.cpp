// Activation functions and products between INT8 layers: integers where an INT8 layer reads the result, f32 elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/plan/micro_batch.h"
#include "layers/ops/binary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/unary.h"
#include "quant/quantize_graph.h"
#include "tests/quant/small_resnet.h"

namespace pipit::internal {
namespace {

using test::calibrated;
using test::random_tensor;
using ::testing::ElementsAre;

std::vector<std::string> node_types(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(node.layer->type());
  return names;
}

// A block of EfficientNet or MobileNet v3: convolution, function, squeeze and excitation, convolution, function.
// The squeeze is a pool or, as some exporters write it, a mean.
Graph gated_block(std::mt19937& random, UnaryKind kind, bool mean = false, std::int64_t batch = 1) {
  GraphBuilder graph;
  int constants = 0;
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t channels, std::int64_t kernel) {
    ConvAttributes a;
    a.window.kernel = {kernel, kernel, 1};
    a.window.pad_begin = a.window.pad_end = {kernel / 2, kernel / 2, 0};
    const std::int64_t in = graph.value(x).desc.shape[1];
    const auto constant = [&](const Shape& shape) {
      return graph.add_constant("c" + std::to_string(++constants), random_tensor(shape, random, -0.4F, 0.4F));
    };
    return graph.add1(name, std::make_shared<Conv>(a),
                      {x, constant(Shape{channels, in, kernel, kernel}), constant(Shape{channels})}, name);
  };
  const auto function = [&](const std::string& name, ValueId x, UnaryKind k) {
    return graph.add1(name, std::make_shared<Unary>(UnaryAttributes{k, 0.2, 0.5}), {x}, name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{batch, 3, 12, 12}});
  x = function("f1", conv("conv1", x, 16, 3), kind);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  std::shared_ptr<const Layer> squeeze = std::make_shared<Pool>(average);
  if (mean) squeeze = std::make_shared<Reduce>(ReduceAttributes{ReduceKind::mean, {2, -1}, true});
  ValueId gate = graph.add1("squeeze", squeeze, {x}, "squeeze");
  gate = function("f2", conv("excite", gate, 16, 1), UnaryKind::hard_sigmoid);
  // The gate first, as exporters write it too.
  x = graph.add1("gated", std::make_shared<Binary>(BinaryAttributes{BinaryKind::mul}), {gate, x}, "gated");
  graph.mark_output(function("f3", conv("conv2", x, 8, 1), kind));
  return graph.build();
}

TEST(QuantizedFunctions, StayInIntegersBetweenInt8Layers) {
  std::mt19937 random(test::test_seed());
  const Graph graph = gated_block(random, UnaryKind::silu);
  const QuantizationPlan plan = calibrated(graph, random, 8);
  const Quantized q = quantize_graph(graph, plan);
  // Nothing reads the last function in INT8: its operand is not rounded.
  EXPECT_THAT(node_types(q.graph), ElementsAre("Quantize", "QConv", "QUnary", "QAveragePool", "QConv",
                                               "QUnary", "QMul", "QConv", "Unary"));
  EXPECT_EQ(q.quantized, 7);
}

TEST(QuantizedFunctions, SpatialMeansArePools) {
  std::mt19937 random(test::test_seed());
  const Graph graph = gated_block(random, UnaryKind::silu, true);
  const Quantized q = quantize_graph(graph, calibrated(graph, random, 8));
  EXPECT_THAT(node_types(q.graph), ElementsAre("Quantize", "QConv", "QUnary", "QAveragePool", "QConv",
                                               "QUnary", "QMul", "QConv", "Unary"));
}

TEST(QuantizedFunctions, KeepSamplesApart) {
  std::mt19937 random(test::test_seed());
  const QuantizationPlan plan = calibrated(gated_block(random, UnaryKind::silu), random, 8);
  const Graph batch = gated_block(random, UnaryKind::silu, false, 3);
  EXPECT_EQ(find_samples(quantize_graph(batch, plan).graph).obstacle, "");
}

TEST(QuantizedFunctions, AreKeptAsThePlanSays) {
  std::mt19937 random(test::test_seed());
  const Graph graph = gated_block(random, UnaryKind::hard_swish);
  QuantizationPlan plan = calibrated(graph, random, 8);
  plan.keep = {{"gated", "fp32"}};
  const std::vector<std::string> kept = node_types(quantize_graph(graph, plan).graph);
  EXPECT_THAT(kept, testing::Not(testing::Contains("QMul")));
  // The function before the product is for nothing else, and goes with it; the one before the pool stays.
  EXPECT_EQ(std::count(kept.begin(), kept.end(), "QUnary"), 1);
  std::erase_if(plan.tensors, [](const TensorScale& t) { return t.name == "f1"; });
  EXPECT_THAT(node_types(quantize_graph(graph, plan).graph), testing::Not(testing::Contains("QUnary")));
}

TEST(QuantizedFunctions, AnswerLikeTheFloatGraph) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const UnaryKind kind : {UnaryKind::silu, UnaryKind::hard_swish, UnaryKind::gelu}) {
    const Graph graph = gated_block(random, kind);
    const QuantizationPlan plan = calibrated(graph, random, 16);
    test::expect_int8_like_float(graph, plan, random);
  }
}

}  // namespace
}  // namespace pipit::internal
