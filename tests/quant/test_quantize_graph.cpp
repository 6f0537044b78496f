// A float graph, calibrated and quantized: integers from end to end, and answers near those of the float graph.
#include "quant/quantize_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"
#include "layers/registry.h"
#include "tests/quant/small_resnet.h"
#include "tests/support/run_graph.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::calibrated;
using test::random_tensor;
using test::small_resnet;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> types(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(node.layer->type());
  return names;
}

TEST(QuantizeGraph, StaysInIntegersFromTheImageToTheScores) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  const Quantized q = quantize_graph(graph, calibrated(graph, random, 8));
  EXPECT_THAT(types(q.graph), testing::ElementsAre("Quantize", "QConv", "Pool", "QConv", "QConv",
                                                   "QAveragePool", "Reshape", "Reshape", "QConv", "Reshape"));
  EXPECT_EQ(q.quantized, 7);
  EXPECT_EQ(q.kept, 0);
  // The first convolution reads the planes of the image.
  const std::vector<std::string> laid_out = types(assign_layouts(q.graph).graph);
  EXPECT_EQ(laid_out[0], "Quantize");
  EXPECT_EQ(laid_out[1], "QConv");
}

TEST(QuantizeGraph, AnswersLikeTheFloatGraph) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Graph graph = small_resnet(random);
  for (const bool per_channel : {true, false}) {
    QuantizationPlan plan = calibrated(graph, random, 16);
    plan.weights_per_channel = per_channel;
    test::expect_int8_like_float(graph, plan, random);
  }
}

// Convolutions of 64, 48 and 40 outputs with 3x3 filters of 1 to 64 inputs, a depthwise one, and one of 1x1.
TEST(QuantizeGraph, TheLargestLayersAreWorthFourBits) {
  std::mt19937 random(test::test_seed());
  GraphBuilder builder;
  ValueId x = builder.add_input("x", TensorDesc{Shape{1, 3, 8, 8}});
  const auto conv = [&](const char* name, std::int64_t outputs, std::int64_t taps, std::int64_t groups) {
    ConvAttributes a;
    a.groups = groups;
    a.window.kernel = {taps, taps, 1};
    a.window.pad_begin = a.window.pad_end = {taps / 2, taps / 2, 0};
    const std::int64_t inputs = builder.value(x).desc.shape[1] / groups;
    const ValueId w = builder.add_constant(std::string(name) + "w",
                                           random_tensor(Shape{outputs, inputs, taps, taps}, random));
    x = builder.add1(name, std::make_shared<Conv>(a), {x, w}, name);
  };
  conv("stem", 64, 3, 1);        // 1728 weights
  conv("depthwise", 64, 5, 64);  // 1600
  conv("first", 48, 3, 1);       // 27648
  conv("narrow", 40, 1, 1);      // 1920
  conv("last", 48, 3, 1);        // 17280
  builder.mark_output(x);
  const Graph graph = builder.build();
  // Of 50176 weights 5248 are left, more than a tenth; the next layer has rows of 48.
  EXPECT_THAT(worth_4_bits(graph), testing::ElementsAre("first", "last", "narrow"));

  const QuantizationPlan plan = calibrated(graph, random, 4);
  const Quantized q = quantize_graph(graph, plan, {.in_4_bits = worth_4_bits(graph)});
  for (const Node& node : q.graph.nodes()) {
    if (layer_if<QConv>(node) == nullptr) continue;
    SCOPED_TRACE(node.name);
    const auto integers = q.graph.value(node.inputs[1]).constant->values<std::int8_t>();
    const auto [low, high] = std::ranges::minmax(integers);
    const bool few = worth_4_bits(graph).contains(node.name);
    EXPECT_EQ(low >= -8 && high <= 7, few);
    EXPECT_TRUE(few || high == 127 || low == -127);
  }
}

TEST(QuantizeGraph, KeepsWhatThePlanKeeps) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  QuantizationPlan plan = calibrated(graph, random, 4);
  plan.keep = {{"stem", "fp32"}, {"fc", "fp32"}};
  const Quantized q = quantize_graph(graph, plan);
  EXPECT_THAT(types(q.graph), testing::ElementsAre("Conv", "Pool", "Quantize", "QConv", "QConv",
                                                   "QAveragePool", "Reshape", "Gemm"));
  EXPECT_EQ(q.kept, 2);
  plan.keep = {{"no such node", "fp32"}};
  EXPECT_THAT([&] { quantize_graph(graph, plan); }, ThrowsMessage<Error>(HasSubstr("no such node")));
}

TEST(QuantizeGraph, LeavesAloneWhatHasNoScale) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  QuantizationPlan plan = calibrated(graph, random, 4);
  std::erase_if(plan.tensors, [](const TensorScale& t) { return t.name == "block1"; });
  const Quantized q = quantize_graph(graph, plan);
  EXPECT_EQ(q.kept, 2);       // what writes it and what reads it
  EXPECT_EQ(q.quantized, 3);  // stem, max pool and classifier
  plan.tensors[1].name += "e";
  EXPECT_THAT([&] { quantize_graph(graph, plan); },
              ThrowsMessage<Error>(HasSubstr("no such tensor; did you mean '")));
  plan.tensors.clear();
  EXPECT_THAT([&] { quantize_graph(graph, plan); }, ThrowsMessage<Error>(HasSubstr("calibrate this model")));
}

// An image of pixels, halves of channels that change places, and a return to pixels: all of it on integers.
TEST(QuantizeGraph, RearrangesIntegers) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  test::TestGraph t;
  t.random.seed(seed);
  ValueId x = t.input(Shape{1, 12, 12, 3});
  x = t.conv("stem", t.add("planes", Transpose(TransposeAttributes{{0, 3, 1, 2}}), {x}), 16);
  const std::vector<ValueId> halves = t.graph.add(
      "split", std::make_shared<Split>(SplitAttributes{.axis = 1, .sizes = {8, 8}}), {x}, {"a", "b"});
  x = t.add("concat", Concat(ConcatAttributes{.axis = 1}), {halves[1], halves[0]});
  x = t.conv("middle", x, 128);  // writes to the places of DepthToSpace itself
  x = t.add("larger", DepthToSpace(DepthToSpaceAttributes{.block = 2}), {x});
  x = t.add("cut",
            Slice(SliceAttributes{.starts = {1, 1}, .ends = {23, 24}, .axes = {2, 3}, .steps = {1, 1}}), {x});
  x = t.conv("last", x, 4);
  x = t.add("pixels", Transpose(TransposeAttributes{{0, 2, 3, 1}}), {x});
  const Graph graph = t.build({x});
  std::mt19937 random(seed);
  const QuantizationPlan plan = calibrated(graph, random, 8);
  const Quantized q = quantize_graph(graph, plan);
  EXPECT_THAT(types(q.graph), testing::ElementsAre("Transpose", "Quantize", "QConv", "Split", "Concat",
                                                   "QConv", "DepthToSpace", "Slice", "QConv", "Transpose"));
  EXPECT_EQ(q.kept, 0);
  test::expect_int8_like_float(graph, plan, random);
}

TEST(QuantizeGraph, GivesADeadChannelWithABiasItsBias) {
  std::mt19937 random(1);
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape{1, 1, 2, 2}});
  const std::vector<float> weights{1e-12F, 0.0F, 1.0F}, bias{3.0F, -2.0F, 0.5F};
  builder.mark_output(
      builder.add1("conv", std::make_shared<Conv>(ConvAttributes{}),
                   {x, builder.add_constant("w", Tensor::from<float>(Shape{3, 1, 1, 1}, weights)),
                    builder.add_constant("b", Tensor::from<float>(Shape{3}, bias))},
                   "y"));
  const Graph graph = builder.build();
  QuantizationPlan plan;
  for (const char* name : {"x", "y"}) {
    plan.tensors.push_back({});
    plan.tensors.back().name = name;
    plan.tensors.back().scale = 1.0F / 127;
  }
  const Tensor image = Tensor::from<float>(Shape{1, 1, 2, 2}, std::vector<float>{1, 0, -1, 0.5F});
  std::vector<Tensor> inputs;
  inputs.push_back(image.clone());
  const auto y =
      test::run_graph(assign_layouts(quantize_graph(graph, plan).graph).graph, default_registry(), inputs);
  EXPECT_THAT(y[0].values<float>(),
              testing::Pointwise(testing::FloatNear(0.01F),
                                 {3.F, 3.F, 3.F, 3.F, -2.F, -2.F, -2.F, -2.F, 1.5F, 0.5F, -0.5F, 1.0F}));
}

}  // namespace
}  // namespace pipit::internal
