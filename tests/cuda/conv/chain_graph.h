// Graphs of chains of convolutions with random weights, and what a chain's kernel makes of them on a GPU.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "compile/compile.h"
#include "engine/cuda/runtime.h"
#include "layers/ops/conv.h"
#include "layers/ops/quantize.h"
#include "tests/cuda/conv/qconv_cases.h"
#include "tests/cuda/conv/random_chain.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

/// How random weights and activations are; weights in INT8 are up to `weights` in magnitude.
struct ChainNumbers {
  int weights = 127;
  /// Of a convolution of the chain. Null: none, ReLU, or both bounds.
  std::function<Clamp(std::size_t)> activation = {};
  std::optional<int> least_weight = {};  ///< nothing: as far below zero
};

/// In INT8 after a Quantize for each input.
inline Graph graph_of(const cuda::ConvChainShape& s, bool int8, Numbers& numbers,
                      const ChainNumbers& how = {}) {
  const auto shape_of = [&](int channels) { return Shape{s.images, channels, s.height, s.width}; };
  GraphBuilder builder;
  std::vector<ValueId> values;
  for (const int channels : s.inputs) {
    const std::string name = fmt::format("x{}", values.size());
    values.push_back(builder.add_input(name, TensorDesc{shape_of(channels)}));
    if (int8) values.back() = builder.add1(name + ".q", std::make_shared<Quantize>(kI8), {values.back()});
  }
  for (std::size_t c = 0; c < s.convs.size(); ++c) {
    const cuda::ChainConv& conv = s.convs[c];
    const std::int64_t size = conv.window ? 3 : 1;
    const Shape shape{conv.out_c, conv.in_c, size, size};
    const auto depth = static_cast<double>(conv.in_c * size * size);
    ConvAttributes plain;
    set_window(plain.window, size, 1, 1, size / 2);
    if (how.activation) {
      plain.activation = how.activation(c);
    } else if (numbers.coin()) {
      plain.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
    }
    const std::string name = fmt::format("conv{}", c);
    std::vector<ValueId> inputs{values[static_cast<std::size_t>(conv.x)]};
    if (int8) {
      inputs.push_back(builder.add_constant(
          name + ".w",
          numbers.integers<std::int8_t>(shape, how.least_weight.value_or(-how.weights), how.weights)));
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
        a.weight_scales.push_back(
            static_cast<float>(0.0508 / how.weights * numbers.pick(10, 40) / std::sqrt(depth)));
      values.push_back(builder.add1(name, std::make_shared<QConv>(a), inputs));
    } else {
      values.push_back(builder.add1(name, std::make_shared<Conv>(plain), inputs));
    }
  }
  builder.mark_output(values.back());
  return builder.build();
}

/// kernel: wherever it accepts a chain, also where it is not known to pay; empty: no chains.
inline std::shared_ptr<const ExecutionPlan> plan_for(const Graph& graph, DeviceKind device,
                                                     Precision precision, const std::string& kernel = {}) {
  CompileOptions options;
  options.planning.device = device;
  options.planning.precision = precision;
  options.planning.exclude_kernels = {
      {"row_chain"}, {"resident_block"}, {"projected_sum"}, {"pooled_stem"}, {"squeeze_excite"}};
  if (!kernel.empty()) {
    options.planning.prefer_kernels = {{kernel}};
    std::erase_if(options.planning.exclude_kernels,
                  [&](const KernelName& excluded) { return excluded.name == kernel; });
  }
  return compile(graph, options).plans[0];
}

inline int chains_in(const ExecutionPlan& plan, std::string_view kernel) {
  return static_cast<int>(std::count_if(plan.steps().begin(), plan.steps().end(),
                                        [&](const Step& step) { return step.kernel_name == kernel; }));
}

inline std::vector<Tensor> results(Session& session, const std::vector<Tensor>& inputs) {
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  std::vector<Tensor> outputs;
  for (const ConstTensorView& y : session.run(views)) outputs.push_back(to_layout(y, Layout::row_major));
  return outputs;
}

inline std::vector<std::byte> bytes_of(const Tensor& t) {
  return {t.view().data, t.view().data + t.desc().bytes()};
}

/// The norm of the difference, of that of `expected`.
inline double relative_error(const Tensor& given, const Tensor& expected) {
  double error = 0, norm = 0;
  for (std::size_t e = 0; e < expected.values<float>().size(); ++e) {
    const double y = expected.values<float>()[e];
    error += std::pow(given.values<float>()[e] - y, 2);
    norm += y * y;
  }
  return std::sqrt(error / norm);
}

/// Of a Hopper GPU; 0: of another one.
inline int processors() {
  int count = 0, major = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  PIPIT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major >= 9 ? count : 0;
}

/// The graph's answers with the kernel on a GPU are the CPU's, bit for bit, three times. Returns how many chains it
/// took.
inline int expect_specification(const Graph& graph, const std::string& kernel, Numbers& numbers) {
  const auto plan = plan_for(graph, DeviceKind::cuda, Precision::fp32, kernel);
  Session gpu(plan), cpu(plan_for(graph, DeviceKind::cpu, Precision::fp32));
  for (int run = 0; run < 3; ++run) {
    const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
    EXPECT_EQ(bytes_of(results(gpu, inputs)[0]), bytes_of(results(cpu, inputs)[0])) << "run " << run;
  }
  return chains_in(*plan, kernel);
}

/// In fp16 they are within `bound` of the CPU's in fp32, by norms, and the same each time; in bf16, of three bits less,
/// within eight times as much, by as many chains.
inline int expect_halves(const Graph& graph, const std::string& kernel, double bound, Numbers& numbers) {
  Session cpu(plan_for(graph, DeviceKind::cpu, Precision::fp32));
  const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
  const std::vector<Tensor> wanted = results(cpu, inputs);
  const auto chains = [&](Precision precision, double allowed) {
    SCOPED_TRACE(precision_name(precision));
    const auto plan = plan_for(graph, DeviceKind::cuda, precision, kernel);
    Session gpu(plan);
    const std::vector<Tensor> given = results(gpu, inputs);
    EXPECT_LE(relative_error(given[0], wanted[0]), allowed);
    for (int run = 0; run < 3; ++run) EXPECT_EQ(bytes_of(results(gpu, inputs)[0]), bytes_of(given[0]));
    return chains_in(*plan, kernel);
  };
  const int halves = chains(Precision::fp16, bound);
  EXPECT_EQ(chains(Precision::bf16, 8 * bound), halves);
  return halves;
}

#define PIPIT_NEEDS_HOPPER() \
  PIPIT_NEEDS_GPU();         \
  if (processors() == 0) GTEST_SKIP() << "not a Hopper GPU"

}  // namespace pipit::internal::test
