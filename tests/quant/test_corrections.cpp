// Cross-layer equalization and bias correction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "quant/bias_correction.h"
#include "quant/equalize.h"
#include "quant/quantize_graph.h"
#include "quant/tensor_difference.h"
#include "tests/quant/small_resnet.h"

namespace pipit::internal {
namespace {

using test::random_tensor;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Three convolutions, the second one depthwise, whose channels have very different ranges between them.
Graph unequal_graph(std::mt19937& random, const Clamp& activation) {
  std::uniform_real_distribution<float> exponent(-5, 5);
  GraphBuilder graph;
  std::vector<float> ranges[2];
  for (auto& r : ranges) {
    for (int c = 0; c < 8; ++c) r.push_back(std::exp2(exponent(random)));
  }
  const auto conv = [&](const std::string& name, ValueId x, const Shape& shape, std::int64_t groups,
                        const std::vector<float>& outputs, const std::vector<float>& inputs,
                        const Clamp& clamp) {
    ConvAttributes a;
    a.window.kernel = {shape[2], shape[3], 1};
    a.groups = groups;
    a.activation = clamp;
    Tensor w = random_tensor(shape, random);
    Tensor b = random_tensor(Shape{shape[0]}, random, 0, 0.3F);
    const auto depth = static_cast<std::size_t>(shape.elements() / shape[0]);
    for (std::size_t i = 0; i < depth * static_cast<std::size_t>(shape[0]); ++i) {
      const std::size_t o = i / depth;
      const std::size_t in =
          groups == 1 ? i / static_cast<std::size_t>(shape[2] * shape[3]) % static_cast<std::size_t>(shape[1])
                      : o;
      if (!outputs.empty()) w.values<float>()[i] *= outputs[o];
      if (!inputs.empty()) w.values<float>()[i] /= inputs[in];
    }
    if (!outputs.empty()) {
      for (std::size_t o = 0; o < b.values<float>().size(); ++o) b.values<float>()[o] *= outputs[o];
    }
    return graph.add1(
        name, std::make_shared<Conv>(a),
        {x, graph.add_constant(name + ".w", std::move(w)), graph.add_constant(name + ".b", std::move(b))},
        name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{1, 3, 12, 12}});
  x = conv("first", x, Shape{8, 3, 1, 1}, 1, ranges[0], {}, activation);
  x = conv("depthwise", x, Shape{8, 1, 3, 3}, 8, ranges[1], ranges[0], activation);
  x = conv("last", x, Shape{5, 8, 1, 1}, 1, {}, ranges[1], {});
  graph.mark_output(x);
  return graph.build();
}

double noise(const Graph& graph, const Graph& quantized, std::mt19937& random) {
  TensorDifference difference;
  for (int i = 0; i < 4; ++i) {
    const std::vector<Tensor> inputs = test::random_inputs(graph, random);
    const auto real = test::run_graph(assign_layouts(graph).graph, default_registry(), inputs);
    const auto coarse = test::run_graph(assign_layouts(quantized).graph, default_registry(), inputs);
    difference.add(real[0].shape(), real[0].values<float>(), coarse[0].values<float>(), 1e30F);
  }
  return difference.noise() / difference.signal();
}

TEST(Equalization, KeepsTheFunctionAndBalancesTheRanges) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Graph graph = unequal_graph(random, Clamp::relu());
  const std::vector<QuantizationPlan::Equalized> pairs = equalization(graph);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].first + " " + pairs[0].second, "first depthwise");
  EXPECT_EQ(pairs[1].first + " " + pairs[1].second, "depthwise last");
  const Graph equal = equalize(graph, pairs);
  const std::vector<Tensor> inputs = test::random_inputs(graph, random);
  const auto before = test::run_graph(graph, default_registry(), inputs, "reference");
  const auto after = test::run_graph(equal, default_registry(), inputs, "reference");
  // Three roundings of weights and sums in double.
  EXPECT_LT(test::relative_error(after[0].values<float>(), before[0].values<float>()), 1e-6);
  for (const QuantizationPlan::Equalized& again : equalization(equal)) {
    for (const float factor : again.factors) EXPECT_NEAR(factor, 1, 0.01);
  }
}

TEST(Equalization, BringsBackWhatUnequalChannelsCost) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Graph graph = unequal_graph(random, Clamp::relu());
  const Graph equal = equalize(graph, equalization(graph));
  const double plain = noise(graph, quantize_graph(graph, test::calibrated(graph, random, 16)).graph, random);
  const double better =
      noise(graph, quantize_graph(equal, test::calibrated(equal, random, 16)).graph, random);
  // Ranges differ by up to 2^10: channels of little range are almost lost in a tensor's one scale.
  EXPECT_LT(better, plain / 3) << plain;
}

TEST(Equalization, LeavesOutWhatDoesNotScaleAlong) {
  std::mt19937 random(1);
  EXPECT_TRUE(equalization(unequal_graph(random, Clamp{0, 6})).empty());
  EXPECT_EQ(equalization(unequal_graph(random, Clamp{})).size(), 2U);
  // The stem is read by a pool, block1 by block2 alone, block2 has a residual.
  const std::vector<QuantizationPlan::Equalized> pairs = equalization(test::small_resnet(random));
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].first, "block1");
}

TEST(Equalization, RefusesFactorsOfAnotherModel) {
  std::mt19937 random(1);
  const Graph graph = unequal_graph(random, Clamp::relu());
  std::vector<QuantizationPlan::Equalized> pairs = equalization(graph);
  pairs[0].factors.pop_back();
  EXPECT_THAT([&] { equalize(graph, pairs); }, ThrowsMessage<Error>(HasSubstr("7 factors")));
  pairs[0].second = "last";
  EXPECT_THAT([&] { equalize(graph, pairs); }, ThrowsMessage<Error>(HasSubstr("no neighbouring")));
}

TEST(Equalization, LeavesDeadChannelsAlone) {
  GraphBuilder graph;
  ValueId x = graph.add_input("x", TensorDesc{Shape{1, 1, 2, 2}});
  const std::vector<float> first{0, 4}, second{3, 1};
  x = graph.add1(
      "a", std::make_shared<Conv>(ConvAttributes{}),
      {x, graph.add_constant("aw", Tensor::from<float>(Shape{2, 1, 1, 1}, std::span<const float>(first)))});
  x = graph.add1(
      "b", std::make_shared<Conv>(ConvAttributes{}),
      {x, graph.add_constant("bw", Tensor::from<float>(Shape{1, 2, 1, 1}, std::span<const float>(second)))});
  graph.mark_output(x);
  EXPECT_THAT(equalization(graph.build())[0].factors, testing::ElementsAre(1.0F, 2.0F));
}

// Weights that all round in the same direction, and inputs with a mean: the outputs shift, and the correction takes it
// back.
TEST(BiasCorrection, TakesBackTheShiftOfTheMean) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const std::int64_t groups : {1, 4}) {
    GraphBuilder builder;
    ValueId x = builder.add_input("image", TensorDesc{Shape{1, 4, 6, 6}});
    ConvAttributes a;
    a.groups = groups;
    Tensor w(TensorDesc{Shape{4, 4 / groups, 1, 1}});
    std::uniform_real_distribution<float> part(0.25F, 0.45F);
    std::uniform_int_distribution<int> whole(-10, 10);
    for (float& v : w.values<float>()) v = (static_cast<float>(whole(random)) + part(random)) / 127;
    for (std::size_t o = 0; o < 4; ++o) w.values<float>()[o * static_cast<std::size_t>(4 / groups)] = 1;
    x = builder.add1("conv", std::make_shared<Conv>(a), {x, builder.add_constant("w", std::move(w))}, "y");
    builder.mark_output(x);
    const Graph graph = builder.build();
    CompileOptions options;
    options.planning.keep_every_value = true;
    options.planning.threads = 1;
    const auto built = compile(graph, options).plans[0];
    Session session(built);
    ChannelMeans means(built->graph());
    session.set_observer(&means);
    std::vector<Tensor> images;
    for (int i = 0; i < 8; ++i) {
      images.push_back(random_tensor(Shape{1, 4, 6, 6}, random, 0, 2));
      const ConstTensorView view = images.back().view();
      means.begin({&view, 1}, 1);
      session.run({&view, 1});
    }
    QuantizationPlan plan;
    for (const char* name : {"image", "y"}) {
      plan.tensors.push_back({});
      plan.tensors.back().name = name;
      plan.tensors.back().scale = 8.0F / 127;
    }
    plan.tensors[0].scale = 2.0F / 127;
    const auto shift = [&](const QuantizationPlan& own) {
      const Graph quantized = assign_layouts(quantize_graph(graph, own).graph).graph;
      double sum = 0;
      for (const Tensor& image : images) {
        std::vector<Tensor> inputs;
        inputs.push_back(image.clone());
        const auto real = test::run_graph(graph, default_registry(), inputs);
        const auto coarse = test::run_graph(quantized, default_registry(), inputs);
        for (std::size_t i = 0; i < 144; ++i)
          sum += coarse[0].values<float>()[i] - real[0].values<float>()[i];
      }
      return sum / (8 * 144);
    };
    const double before = shift(plan);
    plan.corrected = bias_correction(graph, plan, means);
    ASSERT_EQ(plan.corrected.size(), 1U);
    const double after = shift(plan);
    if (groups == 1) {
      EXPECT_GT(std::abs(before),
                0.004);  // three inputs of mean 1, weights short by a third of a step of 1 / 127
      // What is left is the rounding of the inputs: steps of 2 / 127 over 1152 pixels, and of the bias.
      EXPECT_LT(std::abs(after), 0.001);
    } else {
      EXPECT_NEAR(before, after, 0.001);  // the only weight of each output is exact
    }
  }
}

TEST(Corrections, OfAnotherShapeAreRefused) {
  std::mt19937 random(1);
  const Graph graph = test::small_resnet(random);
  QuantizationPlan plan = test::calibrated(graph, random, 2);
  plan.corrected = {{"fc", {1, 2}}};
  EXPECT_THAT([&] { quantize_graph(graph, plan); },
              ThrowsMessage<Error>(HasSubstr("corrects 2 biases of 10")));
}

}  // namespace
}  // namespace pipit::internal
