// row_chain on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "engine/cuda/runtime.h"
#include "layers/ops/conv.h"
#include "layers/ops/quantize.h"
#include "quant/compile.h"
#include "tests/cuda/chain/random_chain.h"
#include "tests/cuda/quantized/qconv_cases.h"
#include "tests/support/run_graph.h"

namespace pipit::test {
namespace {

using cuda::RowChainShape;
using cuda::RowConv;

Shape shape_of(const RowChainShape& s, int channels) {
  return Shape{s.images, channels, s.height, s.width};
}

// In INT8 behind a Quantize for each input.
Graph graph_of(const RowChainShape& s, bool int8, Numbers& numbers) {
  GraphBuilder builder;
  std::vector<ValueId> values;
  for (const int channels : s.inputs) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(builder.add_input(name, TensorDesc{shape_of(s, channels)}));
    if (int8) values.back() = builder.add1(name + ".q", std::make_shared<Quantize>(kI8), {values.back()});
  }
  for (std::size_t c = 0; c < s.convs.size(); ++c) {
    const RowConv& conv = s.convs[c];
    const std::int64_t size = conv.window ? 3 : 1;
    const Shape shape{conv.out_c, conv.in_c, size, size};
    const auto depth = static_cast<double>(conv.in_c * size * size);
    ConvAttributes plain;
    set_window(plain.window, size, 1, 1, size / 2);
    if (numbers.coin()) plain.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
    const std::string name = fmt::format("conv{}", c);
    std::vector<ValueId> inputs{values[static_cast<std::size_t>(conv.x)]};
    if (int8) {
      inputs.push_back(builder.add_constant(name + ".w", numbers.integers<std::int8_t>(shape, -127, 127)));
      inputs.push_back(numbers.coin() ? builder.add_constant(name + ".b", numbers.integers<std::int32_t>(
                                                                              Shape{conv.out_c}, -3000, 3000))
                                      : kNoValue);
    } else {
      const auto bound = static_cast<float>(std::sqrt(3 / depth));
      inputs.push_back(
          builder.add_constant(name + ".w", random_tensor(shape, numbers.random, -bound, bound)));
      inputs.push_back(
          numbers.coin() ? builder.add_constant(name + ".b", random_tensor(Shape{conv.out_c}, numbers.random))
                         : kNoValue);
    }
    if (conv.residual >= 0) inputs.push_back(values[static_cast<std::size_t>(conv.residual)]);
    if (int8) {
      QConvAttributes a;
      a.conv = plain;
      a.x = a.residual = a.y = kI8;
      for (int o = 0; o < conv.out_c; ++o)
        a.weight_scales.push_back(static_cast<float>(0.0004 * numbers.pick(10, 40) / std::sqrt(depth)));
      values.push_back(builder.add1(name, std::make_shared<QConv>(a), inputs));
    } else {
      values.push_back(builder.add1(name, std::make_shared<Conv>(plain), inputs));
    }
  }
  builder.mark_output(values.back());
  return builder.build();
}

// Rows and channels for which the GPU's blocks are used well.
RowChainShape random_shape(std::mt19937& random, bool int8, int processors) {
  const int rows = draw(random, 0, 1) == 0 ? draw(random, 5, 40) : draw(random, 5, 15);
  int ranks = 16;
  while (rows * ranks > processors) ranks /= 2;
  RowChainShape shape = random_chain(random, 32 * ranks, int8 ? 1 : 2);
  shape.images = rows % 2 == 0 && draw(random, 0, 1) == 0 ? 2 : 1;
  shape.height = rows / shape.images;
  shape.width = draw(random, 1, ranks > 4 ? 18 : 40);
  return shape;
}

std::shared_ptr<const ExecutionPlan> plan_for(const Graph& graph, DeviceKind device, Precision precision,
                                              bool chains = true) {
  CompileOptions options;
  options.planning.device = device;
  options.planning.precision = precision;
  if (chains) {
    options.planning.prefer_kernel = "row_chain";  // also where it is not known to pay
  } else {
    options.planning.exclude_kernels = {"row_chain"};
  }
  return compile(graph, options).plans[0];
}

std::vector<Tensor> results(Session& session, const std::vector<Tensor>& inputs) {
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  std::vector<Tensor> outputs;
  for (const ConstTensorView& y : session.run(views)) outputs.push_back(to_layout(y, Layout::row_major));
  return outputs;
}

std::vector<std::byte> bytes_of(const Tensor& t) {
  return {t.view().data, t.view().data + t.desc().bytes()};
}

int chains_in(const ExecutionPlan& plan) {
  return static_cast<int>(std::count_if(plan.steps().begin(), plan.steps().end(),
                                        [](const Step& step) { return step.kernel_name == "row_chain"; }));
}

// Of a Hopper GPU; 0: of another one.
int processors() {
  int count = 0, major = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  PIPIT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major >= 9 ? count : 0;
}

#define PIPIT_NEEDS_HOPPER() \
  PIPIT_NEEDS_GPU();         \
  if (processors() == 0) GTEST_SKIP() << "not a Hopper GPU"

TEST(RowChain, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(410);
  int chains = 0;
  for (int i = 0; i < 24; ++i) {
    const RowChainShape shape = random_shape(numbers.random, true, processors());
    const Graph graph = graph_of(shape, true, numbers);
    const auto plan = plan_for(graph, DeviceKind::cuda, Precision::fp32);
    chains += chains_in(*plan);
    Session gpu(plan), cpu(plan_for(graph, DeviceKind::cpu, Precision::fp32));
    for (int run = 0; run < 3; ++run) {
      const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
      ASSERT_EQ(bytes_of(results(gpu, inputs)[0]), bytes_of(results(cpu, inputs)[0]))
          << "case " << i << ", run " << run << ", seed " << gpu_seed();
    }
  }
  EXPECT_GT(chains, 8);
}

TEST(RowChain, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(411);
  int chains = 0;
  for (int i = 0; i < 30; ++i) {
    const RowChainShape shape = random_shape(numbers.random, false, processors());
    const Graph graph = graph_of(shape, false, numbers);
    const auto plan = plan_for(graph, DeviceKind::cuda, Precision::fp16);
    chains += chains_in(*plan);
    Session gpu(plan), cpu(plan_for(graph, DeviceKind::cpu, Precision::fp32));
    const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
    const std::vector<Tensor> wanted = results(cpu, inputs), given = results(gpu, inputs);
    const Tensor& expected = wanted[0];
    const Tensor& first = given[0];
    double error = 0, norm = 0;
    for (std::size_t e = 0; e < expected.values<float>().size(); ++e) {
      const double y = expected.values<float>()[e];
      error += std::pow(first.values<float>()[e] - y, 2);
      norm += y * y;
    }
    // Each of up to 12 convolutions rounds what it computes, to 2^-12 of it on average, and passes on what it got.
    EXPECT_LE(std::sqrt(error), 2e-3 * std::sqrt(norm)) << "case " << i << ", seed " << gpu_seed();
    for (int run = 0; run < 3; ++run)
      EXPECT_EQ(bytes_of(results(gpu, inputs)[0]), bytes_of(first)) << "case " << i;
  }
  EXPECT_GT(chains, 4);  // of half of them values leave no room for weights
}

// Blocks wait for each other: launches of several sessions may not each have half of the GPU.
TEST(RowChain, SessionsDoNotWaitForEachOther) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(412);
  RowChainShape shape{1, 14, 14, 1, {256}, {}};
  for (int x = 0; x < 4; ++x) shape.convs.push_back({x, -1, 256, 256, x % 2 == 1});
  const Graph graph = graph_of(shape, true, numbers);
  const auto plan = plan_for(graph, DeviceKind::cuda, Precision::fp32);
  ASSERT_EQ(chains_in(*plan), 1);
  const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
  Session alone(plan_for(graph, DeviceKind::cuda, Precision::fp32, false));
  const std::vector<std::byte> expected = bytes_of(results(alone, inputs)[0]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Session session(plan);
      for (int run = 0; run < 200; ++run) wrong += bytes_of(results(session, inputs)[0]) != expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pipit::test
