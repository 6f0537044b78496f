// What steps of a GPU's plan compute beside their node.
#include <gmock/gmock.h>

#include <cstring>

#include "compile/compile.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "tests/cuda/conv/qconv_cases.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
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
    const std::int64_t depth = weights.elements() / weights[0];
    a.y.scale = static_cast<float>(0.1 * std::sqrt(static_cast<double>(depth)));
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

// For every step: the names of the nodes that are fused into its own.
std::vector<std::string> fused_names(const ExecutionPlan& plan) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps()) {
    for (const int node : step.fused)
      names.push_back(plan.graph().nodes()[static_cast<std::size_t>(node)].name);
  }
  return names;
}

std::string kernels_of(const ExecutionPlan& plan) {
  std::string names;
  for (const Step& step : plan.steps())
    names += fmt::format(" {}: {}", plan.graph().nodes()[static_cast<std::size_t>(step.node)].name,
                         step.kernel_name);
  return names;
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
  EXPECT_THAT(fused_names(*fused),
              testing::ElementsAre("depthwise.silu", "stem.silu", "wide.silu", "narrow.silu"));
  EXPECT_THAT(fused_names(*apart), testing::IsEmpty());
  const auto expected = results(plan_for(DeviceKind::cpu, false));
  EXPECT_EQ(results(fused), expected) << "seed " << gpu_seed();
  EXPECT_EQ(results(apart), expected) << "seed " << gpu_seed();
}

// In fp16, as an EfficientNet has them, with a residual and bounds before the function; where it is not fused: a
// second function, and results that something else reads.
Graph functions_in_floating_point(std::mt19937& random) {
  GraphBuilder builder;
  ValueId x = builder.add_input("x", TensorDesc{Shape({2, 3, 38, 46})});
  const auto conv = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs,
                        std::int64_t kernel, std::int64_t stride, std::int64_t groups, Clamp activation = {},
                        ValueId residual = kNoValue) {
    const Shape shape{outputs, inputs / groups, kernel, kernel};
    // So that results have the variance of x.
    const auto bound = static_cast<float>(
        std::sqrt(3.0 * static_cast<double>(outputs) / static_cast<double>(shape.elements())));
    ConvAttributes a;
    set_window(a.window, kernel, stride, 1, kernel / 2);
    a.groups = groups;
    a.activation = activation;
    std::vector<ValueId> operands{
        x, builder.add_constant(name + ".w", random_tensor(shape, random, -bound, bound)),
        builder.add_constant(name + ".b", random_tensor(Shape{outputs}, random))};
    if (residual != kNoValue) operands.push_back(residual);
    x = builder.add1(name, std::make_shared<Conv>(a), operands);
    return x;
  };
  const auto function = [&](const std::string& name, const UnaryAttributes& a) {
    x = builder.add1(name, std::make_shared<Unary>(a), {x});
    return x;
  };
  conv("stem", 32, 3, 3, 2, 1);
  function("stem.silu", {UnaryKind::silu});
  conv("depthwise", 32, 32, 5, 1, 32);
  function("depthwise.hard_swish", {UnaryKind::hard_swish});
  const ValueId wide = conv("wide", 144, 32, 1, 1, 1);
  builder.mark_output(wide);  // read twice
  const ValueId shortcut = function("wide.silu", {UnaryKind::silu});
  conv("narrow", 40, 144, 1, 1, 1);
  function("narrow.sigmoid", {UnaryKind::sigmoid});
  function("narrow.swish", swish(1.5));  // a second one
  conv("residual", 144, 40, 3, 1, 1, Clamp{-1, 2}, shortcut);
  function("residual.leaky_relu", {UnaryKind::leaky_relu, 0.125});
  builder.mark_output(x);
  return builder.build();
}

TEST(GpuFusion, ConvolutionsOfHalvesComputeTheFunctionOfTheirResults) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  const Graph graph = functions_in_floating_point(random);
  const auto plan_for = [&](DeviceKind device, Precision precision, bool every_value) {
    CompileOptions options;
    options.planning.device = device;
    options.planning.precision = precision;
    options.planning.keep_every_value = every_value;
    return compile(graph, options).plans[0];
  };
  const Tensor input = random_tensor(Shape({2, 3, 38, 46}), random, -1.7F, 1.7F);
  const auto results = [&](const std::shared_ptr<const ExecutionPlan>& plan) {
    Session session(plan);
    const ConstTensorView view = input.view();
    std::vector<Tensor> tensors;
    for (const ConstTensorView& y : session.run({&view, 1}))
      tensors.push_back(to_layout(y, Layout::row_major));
    return tensors;
  };
  const std::vector<Tensor> expected = results(plan_for(DeviceKind::cpu, Precision::fp32, false));
  // Five convolutions and six functions, each of which rounds what it reads and writes by up to 2^-11 at random, or in
  // bf16 to 2^-8; these functions enlarge no error by more than a half of it, of what they keep by less than 3.
  constexpr double kTolerance = 3 * 3.4;
  for (const auto& [precision, rounding] :
       {std::pair(Precision::fp16, 0x1p-11), std::pair(Precision::bf16, 0x1p-8)}) {
    const auto fused = plan_for(DeviceKind::cuda, precision, false);
    const auto apart = plan_for(DeviceKind::cuda, precision, true);
    EXPECT_THAT(fused_names(*fused), testing::ElementsAre("stem.silu", "depthwise.hard_swish",
                                                          "narrow.sigmoid", "residual.leaky_relu"));
    EXPECT_THAT(fused_names(*apart), testing::IsEmpty());
    for (const auto& plan : {fused, apart}) {
      const std::vector<Tensor> got = results(plan);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative_error(got[i].values<float>(), expected[i].values<float>()), kTolerance * rounding)
            << precision_name(precision) << ", output " << i << ", seed " << gpu_seed();
      }
    }
  }
}

// The end of a network in INT8 that keeps its average in floating point: convolution, average, Flatten, Quantize.
// halves: another convolution in floating point is averaged.
Graph average_of_results(Numbers& numbers, const Shape& x_shape, const Quantization& y, bool halves,
                         bool read_twice) {
  GraphBuilder builder;
  ValueId x = builder.add_input("x", TensorDesc{x_shape});
  x = builder.add1("x.quantize", std::make_shared<Quantize>(kI8), {x});
  QConvAttributes a = convolution(1, 1);
  a.y = kReal;
  const std::int64_t channels = x_shape[1];
  x = builder.add1(
      "conv", std::make_shared<QConv>(a),
      {x, builder.add_constant("w", numbers.integers<std::int8_t>({channels, channels, 1, 1}, -127, 127))});
  if (halves) {
    ConvAttributes kept;
    kept.window.rank = 2;
    const ValueId weights =
        builder.add_constant("kept.w", random_tensor({channels, channels, 1, 1}, numbers.random));
    x = builder.add1("kept", std::make_shared<Conv>(kept), {x, weights});
  }
  x = builder.add1("average", std::make_shared<Pool>(PoolAttributes{PoolKind::average, {}, true}), {x});
  if (read_twice) builder.mark_output(x);
  x = builder.add1("flatten", std::make_shared<Reshape>(ReshapeAttributes{Shape{x_shape[0], channels}}), {x});
  builder.mark_output(builder.add1("quantize", std::make_shared<Quantize>(y), {x}));
  return builder.build();
}

// halves: the region in floating point is stored so, as a plan for INT8 has it.
std::shared_ptr<const ExecutionPlan> averages_plan(const Graph& graph, PlanOptions options, bool halves) {
  options.device = DeviceKind::cuda;
  for (const std::string_view type : {Conv::kType, QConv::kType})
    options.prefer_kernels.push_back({"implicit_gemm", std::string(type)});  // as it adds up
  if (halves) options.precision = Precision::int8;
  Graph prepared = optimize(graph, {.device = DeviceKind::cuda, .precision = options.precision});
  return ExecutionPlan::build(std::move(prepared), default_registry(), options);
}

// Averages of images that a convolution's tiles hold, which it computes itself, and of others, by one block for all
// positions of an image and by several; values of f32, and halves.
TEST(GpuFusion, AveragesAreQuantizedInPlace) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(231);
  for (const Shape& shape : {Shape{2, 72, 7, 7}, Shape{5, 40, 5, 5}, Shape{7, 40, 10, 10},
                             Shape{66, 40, 1, 1}, Shape{2, 40, 12, 11}, Shape{3, 16, 25, 31}}) {
    const bool in_tiles = shape[2] * shape[3] <= 128;
    for (const Quantization& y : kTypes) {
      for (const bool halves : {false, true}) {
        for (const bool read_twice : {false, true}) {
          const Graph graph = average_of_results(numbers, shape, y, halves, read_twice);
          const Tensor input = random_tensor(shape, numbers.random, -6, 6);
          const auto plan_for = [&](bool every_value) {
            PlanOptions options;
            options.keep_every_value = every_value;
            return averages_plan(graph, options, halves);
          };
          const auto result = [&](const std::shared_ptr<const ExecutionPlan>& plan) {
            Session session(plan);
            const ConstTensorView view = input.view();
            const Tensor plain = to_layout(session.run({&view, 1}).back(), Layout::row_major);
            return std::vector<std::byte>(plain.view().data, plain.view().data + plain.desc().bytes());
          };
          const auto fused = plan_for(false);
          std::vector<std::string> expected;
          if (in_tiles) expected.emplace_back("average");
          if (!read_twice) expected.emplace_back("quantize");
          EXPECT_EQ(fused_names(*fused), expected) << shape.str() << kernels_of(*fused);
          EXPECT_EQ(result(fused), result(plan_for(true))) << shape.str() << ", seed " << gpu_seed();
        }
      }
    }
  }
}

// The end of ResNet-50, and in fp16 of EfficientNet-B0 with its function.
TEST(GpuFusion, ImplicitGemmFusesAverages) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  for (const std::int64_t batch : {1, 8, 32}) {
    for (const bool silu : {false, true}) {
      const std::int64_t channels = silu ? 320 : 512, outputs = silu ? 1280 : 2048;
      GraphBuilder builder;
      ValueId x = builder.add_input("x", TensorDesc{Shape{batch, channels, 7, 7}});
      ConvAttributes a;
      a.window.rank = 2;
      const ValueId w = builder.add_constant("w", random_tensor({outputs, channels, 1, 1}, random));
      x = builder.add1("conv", std::make_shared<Conv>(a), {x, w});
      if (silu) x = builder.add1("silu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::silu}), {x});
      x = builder.add1("average", std::make_shared<Pool>(PoolAttributes{PoolKind::average, {}, true}), {x});
      builder.mark_output(x);
      CompileOptions options;
      options.planning.device = DeviceKind::cuda;
      options.planning.precision = Precision::fp16;
      options.planning.prefer_kernels = {{"implicit_gemm"}};
      const auto plan = compile(builder.build(), options).plans[0];
      std::vector<std::string> expected;
      if (silu) expected.emplace_back("silu");
      expected.emplace_back("average");
      EXPECT_EQ(fused_names(*plan), expected) << batch;
    }
    Numbers numbers(233);
    GraphBuilder builder;
    ValueId x = builder.add_input("x", TensorDesc{Shape{batch, 512, 7, 7}});
    x = builder.add1("x.quantize", std::make_shared<Quantize>(kI8), {x});
    QConvAttributes a = convolution(1, 1);
    a.y = kReal;
    const ValueId w = builder.add_constant("w", numbers.integers<std::int8_t>({2048, 512, 1, 1}, -127, 127));
    x = builder.add1("conv", std::make_shared<QConv>(a), {x, w});
    x = builder.add1("average", std::make_shared<Pool>(PoolAttributes{PoolKind::average, {}, true}), {x});
    builder.mark_output(builder.add1("quantize", std::make_shared<Quantize>(kI8), {x}));
    CompileOptions options;
    options.planning.device = DeviceKind::cuda;
    options.planning.prefer_kernels = {{"implicit_gemm"}};
    EXPECT_THAT(fused_names(*compile(builder.build(), options).plans[0]),
                testing::ElementsAre("average", "quantize"))
        << batch;
  }
}

// Images that are all the same, at every place of a tile, in tiles that are full and in the last.
TEST(GpuFusion, AveragesDoNotDependOnTheImagesPlace) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(232);
  for (const Shape& shape :
       {Shape{7, 200, 7, 7}, Shape{11, 72, 5, 5}, Shape{70, 72, 1, 1}, Shape{3, 160, 8, 16}}) {
    for (const bool halves : {false, true}) {
      const Graph graph = average_of_results(numbers, shape, kI8, halves, true);
      const Tensor image = random_tensor({1, shape[1], shape[2], shape[3]}, numbers.random, -6, 6);
      Tensor input{TensorDesc{shape}};
      const std::size_t values = image.values<float>().size();
      for (std::size_t i = 0; i < input.values<float>().size(); ++i)
        input.values<float>()[i] = image.values<float>()[i % values];
      const auto plan = averages_plan(graph, {}, halves);
      EXPECT_THAT(fused_names(*plan), testing::ElementsAre("average")) << kernels_of(*plan);
      Session session(plan);
      const ConstTensorView view = input.view();
      for (const ConstTensorView& y : session.run({&view, 1})) {
        const std::size_t bytes = y.desc.bytes() / static_cast<std::size_t>(shape[0]);
        for (std::int64_t n = 1; n < shape[0]; ++n)
          EXPECT_EQ(std::memcmp(y.data, y.data + static_cast<std::size_t>(n) * bytes, bytes), 0)
              << shape.str() << ", image " << n << ", seed " << gpu_seed();
      }
    }
  }
}

}  // namespace
}  // namespace pipit::internal::test
