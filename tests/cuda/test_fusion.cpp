// What steps of a GPU's plan compute beside their node.
#include <gmock/gmock.h>

#include "layers/ops/quantize.h"
#include "quant/compile.h"
#include "tests/cuda/quantized/qconv_cases.h"
#include "tests/support/run_graph.h"

namespace pipit::test {
namespace {

QConvAttributes convolution(std::int64_t kernel, std::int64_t groups) {
  QConvAttributes a;
  set_window(a.conv.window, kernel, 1, 1, kernel / 2);
  a.conv.groups = groups;
  a.x = a.y = kI8;
  a.weight_scales = {0.02F};
  return a;
}

// Convolutions of three candidates, each with a function of its results; the last one's is read twice.
Graph functions_of_convolutions(Numbers& numbers) {
  GraphBuilder builder;
  ValueId x = builder.add_input("x", TensorDesc{Shape({2, 32, 19, 23})});
  x = builder.add1("quantize", std::make_shared<Quantize>(kI8), {x});
  const auto append = [&](const std::string& name, QConvAttributes a, const Shape& weights) {
    const ValueId w = builder.add_constant(name + ".w", numbers.integers<std::int8_t>(weights, -127, 127));
    a.y.scale = static_cast<float>(0.1 * std::sqrt(static_cast<double>(weights.elements() / weights[0])));
    const ValueId y = builder.add1(name, std::make_shared<QConv>(a), {x, w});
    x = builder.add1(name + ".silu", std::make_shared<QUnary>(QUnaryAttributes{{UnaryKind::silu}, a.y, kI8}),
                     {y});
    return y;
  };
  append("depthwise", convolution(5, 32), Shape{32, 1, 5, 5});
  append("stem", convolution(3, 1), Shape{16, 32, 3, 3});
  append("wide", convolution(1, 1), Shape{144, 16, 1, 1});
  append("narrow", convolution(1, 1), Shape{48, 144, 1, 1});
  builder.mark_output(append("twice", convolution(3, 1), Shape{40, 48, 3, 3}));
  builder.mark_output(x);
  return builder.build();
}

TEST(GpuFusion, ConvolutionsComputeTheFunctionOfTheirResults) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(230);
  const Graph graph = functions_of_convolutions(numbers);
  const auto plan_for = [&](DeviceKind device, bool every_value) {
    CompileOptions options;
    options.planning.device = device;
    options.planning.keep_every_value = every_value;
    return compile(graph, options).plans[0];
  };
  const Tensor input = random_tensor(Shape({2, 32, 19, 23}), numbers.random, -6, 6);
  const auto results = [&](const std::shared_ptr<const ExecutionPlan>& plan) {
    Session session(plan);
    const ConstTensorView view = input.view();
    std::vector<std::vector<std::byte>> bytes;
    for (const ConstTensorView& y : session.run({&view, 1})) {
      const Tensor plain = to_layout(y, Layout::row_major);
      bytes.emplace_back(plain.view().data, plain.view().data + plain.desc().bytes());
    }
    return bytes;
  };
  const auto fused = plan_for(DeviceKind::cuda, false);
  const auto apart = plan_for(DeviceKind::cuda, true);
  const auto functions = [](const ExecutionPlan& plan) {
    std::vector<std::string> names;
    for (const Step& step : plan.steps()) {
      for (const int node : step.fused)
        names.push_back(plan.graph().nodes()[static_cast<std::size_t>(node)].name);
    }
    return names;
  };
  EXPECT_THAT(functions(*fused),
              testing::ElementsAre("depthwise.silu", "stem.silu", "wide.silu", "narrow.silu"));
  EXPECT_THAT(functions(*apart), testing::IsEmpty());
  const auto expected = results(plan_for(DeviceKind::cpu, false));
  EXPECT_EQ(results(fused), expected) << "seed " << gpu_seed();
  EXPECT_EQ(results(apart), expected) << "seed " << gpu_seed();
}

}  // namespace
}  // namespace pipit::test
