// A float graph, calibrated and quantised: integers from end to end, and answers near those of the float graph.
#include "quant/quantize_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/binary.h"
#include "layers/conv.h"
#include "layers/fuse/passes.h"
#include "layers/gemm.h"
#include "layers/pool.h"
#include "layers/quantize.h"
#include "layers/rearrange.h"
#include "layers/registry.h"
#include "quant/calibration.h"
#include "tests/support/run_graph.h"

namespace pipit {
namespace {

using test::random_tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Stem, max pool, a residual block, global average pool, classifier: what a ResNet is made of.
Graph small_resnet(std::mt19937& random) {
  GraphBuilder graph;
  int constants = 0;
  const auto constant = [&](const Shape& shape, float magnitude) {
    return graph.add_constant("c" + std::to_string(++constants),
                              random_tensor(shape, random, -magnitude, magnitude));
  };
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t channels, const Clamp& activation,
                        ValueId residual = kNoValue) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.activation = activation;
    const std::int64_t in = graph.value(x).desc.shape[1];
    return graph.add1(
        name, std::make_shared<Conv>(a),
        {x, constant(Shape{channels, in, 3, 3}, 0.3F), constant(Shape{channels}, 0.2F), residual}, name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{1, 3, 12, 12}});
  x = conv("stem", x, 16, Clamp::relu());
  PoolAttributes max;
  max.window.kernel = max.window.stride = {2, 2, 1};
  x = graph.add1("max", std::make_shared<Pool>(max), {x}, "max");
  const ValueId inner = conv("block1", x, 16, Clamp::relu());
  x = conv("block2", inner, 16, Clamp::relu(), x);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  x = graph.add1("gap", std::make_shared<Pool>(average), {x}, "gap");
  x = graph.add1("flat", std::make_shared<Reshape>(ReshapeAttributes{Shape{1, 16}}), {x}, "flat");
  GemmAttributes gemm;
  gemm.transpose_b = true;
  gemm.beta = 0.5F;
  x = graph.add1("fc", std::make_shared<Gemm>(gemm), {x, constant(Shape{10, 16}, 1), constant(Shape{10}, 1)},
                 "scores");
  graph.mark_output(x);
  return graph.build();
}

PrecisionPlan calibrated(const Graph& graph, std::mt19937& random, int images) {
  PlanOptions options;
  options.keep_every_value = true;
  options.threads = 1;
  const auto plan = Plan::build(assign_layouts(graph).graph, default_registry(), options);
  Session session(plan);
  CalibrationObserver observer(*plan, session.pool());
  session.set_observer(&observer);
  for (int i = 0; i < images; ++i) {
    const Tensor image = random_tensor(Shape{1, 3, 12, 12}, random);
    const ConstTensorView view = image.view();
    observer.begin({&view, 1}, 1);
    session.run({&view, 1});
  }
  PrecisionPlan result;
  result.method.method = ThresholdMethod::minmax;
  for (const auto& o : observer.observed()) {
    result.tensors.push_back({});
    result.tensors.back().name = o.name;
    result.tensors.back().histogram = o.histogram;
  }
  set_scales(result);
  return result;
}

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
  EXPECT_EQ(q.quantised, 7);
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
    PrecisionPlan plan = calibrated(graph, random, 16);
    plan.weights_per_channel = per_channel;
    QuantizeOptions unsigned_bytes, signed_bytes;
    signed_bytes.activations = DType::i8;
    const Graph u8 = assign_layouts(quantize_graph(graph, plan, unsigned_bytes).graph).graph;
    const Graph i8 = assign_layouts(quantize_graph(graph, plan, signed_bytes).graph).graph;
    for (int i = 0; i < 4; ++i) {
      const std::vector<Tensor> inputs = test::random_inputs(graph, random);
      const auto real = test::run_graph(graph, default_registry(), inputs);
      const auto quantised = test::run_graph(u8, default_registry(), inputs);
      // 7 bits and a sign per tensor: about 1 % a layer.
      EXPECT_LT(test::relative_error(quantised[0].values<float>(), real[0].values<float>()), 0.08);
      EXPECT_THAT(test::run_graph(i8, default_registry(), inputs)[0].values<float>(),
                  testing::ElementsAreArray(quantised[0].values<float>()));
    }
  }
}

TEST(QuantizeGraph, KeepsWhatThePlanKeeps) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  PrecisionPlan plan = calibrated(graph, random, 4);
  plan.keep = {{"stem", "fp32"}, {"fc", "fp32"}};
  const Quantized q = quantize_graph(graph, plan);
  EXPECT_THAT(types(q.graph), testing::ElementsAre("Conv", "Pool", "Quantize", "QConv", "QConv",
                                                   "QAveragePool", "Reshape", "Dequantize", "Gemm"));
  EXPECT_EQ(q.kept, 2);
  plan.keep = {{"no such node", "fp32"}};
  EXPECT_THAT([&] { quantize_graph(graph, plan); }, ThrowsMessage<Error>(HasSubstr("no such node")));
}

TEST(QuantizeGraph, LeavesAloneWhatHasNoScale) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  PrecisionPlan plan = calibrated(graph, random, 4);
  std::erase_if(plan.tensors, [](const TensorScale& t) { return t.name == "block1"; });
  const Quantized q = quantize_graph(graph, plan);
  EXPECT_EQ(q.kept, 2);       // what writes it and what reads it
  EXPECT_EQ(q.quantised, 3);  // stem, max pool and classifier
  plan.tensors.clear();
  EXPECT_THAT([&] { quantize_graph(graph, plan); }, ThrowsMessage<Error>(HasSubstr("calibrate this model")));
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
  PrecisionPlan plan;
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
}  // namespace pipit
