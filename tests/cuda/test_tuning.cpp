// Choice by measurement and the fallback to the CPU on a GPU.
#include <gmock/gmock.h>

#include "compile/compile.h"
#include "engine/runtime/session.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/ops/conv.h"
#include "layers/ops/unary.h"
#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/seed.h"
#include "tests/support/run_graph.h"
#include "tests/support/toy_layers.h"

namespace pipit::internal::test {
namespace {

using testing::HasSubstr;

PlanOptions gpu_options(Precision precision) {
  PlanOptions options;
  options.device = DeviceKind::cuda;
  options.precision = precision;
  options.threads = 2;
  return options;
}

// Every output of `runs` runs on one input: the first goes step by step, later ones replay a graph.
std::vector<std::vector<float>> run_plan(const std::shared_ptr<const ExecutionPlan>& plan,
                                         const Tensor& input, int runs) {
  Session session(plan);
  std::vector<std::vector<float>> results;
  for (int r = 0; r < runs; ++r) {
    const ConstTensorView view = input.view();
    const ConstTensorView y = session.run({&view, 1})[0];
    results.emplace_back(y.as<float>(), y.as<float>() + y.desc.elements());
  }
  return results;
}

Graph stored(const Graph& graph, Precision precision) {
  Graph optimized = optimize(graph);
  return precision == Precision::fp32 ? optimized
                                      : assign_precision(optimized, precision, DeviceKind::cuda).graph;
}

// Three convolutions, two of them of one geometry.
Graph convolutions() {
  std::mt19937 random(11);
  GraphBuilder builder;
  ValueId v = builder.add_input("x", TensorDesc{Shape({2, 16, 28, 28})});
  for (int i = 0; i < 3; ++i) {
    const std::int64_t to = 32;
    const std::int64_t from = i == 0 ? 16 : to;
    const std::string name = "conv" + std::to_string(i);
    const ValueId w =
        builder.add_constant(name + "w", random_tensor(Shape({to, from, 3, 3}), random, -0.1F, 0.1F));
    const ValueId b = builder.add_constant(name + "b", random_tensor(Shape({to}), random));
    ConvAttributes attributes;
    attributes.window.kernel = {3, 3, 1};
    attributes.window.pad_begin = attributes.window.pad_end = {1, 1, 0};
    v = builder.add1(name, std::make_shared<Conv>(attributes), {v, w, b});
  }
  builder.mark_output(v);
  return builder.build();
}

std::shared_ptr<const ExecutionPlan> convolution_plan(Precision precision, std::shared_ptr<Tuner> tuner) {
  CompileOptions options;
  options.planning = gpu_options(precision);
  options.planning.keep_every_value = true;  // each layer is a step of its own
  options.planning.tuner = std::move(tuner);
  return compile(convolutions(), options).plans[0];
}

// Of the results of one kernel, by norms (conformance.h).
double kernel_tolerance(Precision precision) {
  return precision == Precision::bf16 ? 1.6e-2 : precision == Precision::fp16 ? 2e-3 : 1e-5;
}

TEST(GpuTuning, ATunedPlanComputesTheSameAndItsDecisionsHold) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  const Tensor input = random_tensor(Shape({2, 16, 28, 28}), random);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    SCOPED_TRACE(precision_name(precision));
    const auto by_order = run_plan(convolution_plan(precision, nullptr), input, 1)[0];
    const auto tuner = std::make_shared<Tuner>(TunerOptions{});
    const auto tuned = convolution_plan(precision, tuner);
    const auto results = run_plan(tuned, input, 3);
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
    // Each of three layers rounds once more or less: the tolerance of one kernel, twice over.
    EXPECT_LT(relative_error(results[0], by_order), 2 * kernel_tolerance(precision));

    const auto later = std::make_shared<Tuner>(TunerOptions{});
    for (const auto& [device, decisions] : tuner->decisions()) later->add_decisions(device, decisions);
    const auto cached = convolution_plan(precision, later);
    int convs = 0;
    for (std::size_t s = 0; s < tuned->steps().size(); ++s) {
      const Step& a = tuned->steps()[s];
      const Step& b = cached->steps()[s];
      EXPECT_EQ(a.kernel_name, b.kernel_name);
      EXPECT_EQ(a.variant, b.variant);
      if (tuned->graph().nodes()[static_cast<std::size_t>(a.node)].layer->type() != Conv::kType) continue;
      ++convs;
      EXPECT_EQ(a.choice.by, ChosenBy::measurement);
      EXPECT_EQ(b.choice.by, ChosenBy::cache);
      EXPECT_GT(a.choice.timed.size(), 1U);
      for (const TimedKernel& t : a.choice.timed) {
        EXPECT_TRUE(t.ms > 0 || !t.problem.empty()) << t.name << " " << t.variant;
        EXPECT_LT(t.ms, 100) << t.name << " " << t.variant;
      }
    }
    EXPECT_EQ(convs, 3);
    EXPECT_TRUE(later->decisions().empty());
    EXPECT_EQ(run_plan(cached, input, 2)[1], results[0]);
  }
}

// Every variant that a candidate offers is right, or says why it is not there.
TEST(GpuTuning, EveryVariantComputesTheSame) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 1);
  const Tensor input = random_tensor(Shape({2, 16, 28, 28}), random);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    const auto expected = run_plan(convolution_plan(precision, nullptr), input, 1)[0];
    for (const Candidate& candidate : default_registry().candidates(Conv::kType, DeviceKind::cuda)) {
      if (!candidate.variants) continue;
      std::vector<std::string> names;
      for (int i = 0; i == 0 || i < static_cast<int>(names.size()); ++i) {
        // The candidate under test alone, in variant number i of each node.
        Candidate fixed = candidate;
        fixed.variants = nullptr;
        fixed.create = [&](const NodeSpec& spec) {
          names = candidate.variants(spec);
          NodeSpec own = spec;
          own.variant = names[static_cast<std::size_t>(i) % names.size()];
          return candidate.create(own);
        };
        Registry registry;
        for (const std::string_view type : {"Cast", "ToLayout"}) {
          for (const Candidate& other : default_registry().candidates(type, DeviceKind::cuda))
            registry.add(type, DeviceKind::cuda, other);
        }
        registry.add(Conv::kType, DeviceKind::cuda, fixed);
        try {
          const auto plan =
              ExecutionPlan::build(stored(convolutions(), precision), registry, gpu_options(precision));
          const auto got = run_plan(plan, input, 2);
          EXPECT_LT(relative_error(got[1], expected), 2 * kernel_tolerance(precision))
              << candidate.name << " " << names[static_cast<std::size_t>(i)];
        } catch (const UnsupportedError&) {
          break;  // not in this precision
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("proposes")) << candidate.name << " variant " << i;
        }
      }
    }
  }
}

TEST(GpuTuning, ProposalNames) {
  EXPECT_EQ(cuda::proposal_number(""), 0);
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(cuda::proposal_number(cuda::proposals(12)[static_cast<std::size_t>(i)]), i);
  for (const char* wrong : {"proposal", "proposal ", "proposal -1", "proposal 1x", "64x64"})
    EXPECT_THROW(cuda::proposal_number(wrong), Error) << wrong;
}

// -x on the GPU, + k on the CPU, which alone knows it, relu on the GPU.
Graph mixed_graph(const Shape& shape) {
  std::mt19937 random(3);
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{shape});
  const ValueId k = builder.add_constant("k", random_tensor(shape, random));
  const ValueId a =
      builder.add1("negate", std::make_shared<Unary>(UnaryAttributes{UnaryKind::neg, 0, 0}), {x});
  const ValueId b = builder.add1("sum", std::make_shared<ToyAdd>(true), {a, k});
  builder.mark_output(
      builder.add1("relu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::relu, 0, 0}), {b}));
  return builder.build();
}

class Throwing final : public Kernel {
 public:
  explicit Throwing(int* calls) : calls_(calls) {}
  void run(std::span<const ConstTensorView> in, std::span<const TensorView> out,
           const RunContext& context) const override {
    if (++*calls_ == 2) fail("the second run fails");
    ToyAddKernel(0, true).run(in, out, context);
  }

 private:
  int* calls_;
};

Registry with_toy(std::function<std::unique_ptr<Kernel>(const NodeSpec&)> create) {
  Registry registry = default_registry();
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"plain",
                [](const NodeSpec& spec) -> Refusal {
                  if (spec.precision != Precision::fp32 || spec.outputs[0].dtype != DType::f32)
                    return "only fp32";
                  return std::nullopt;
                },
                std::move(create)});
  return registry;
}

TEST(GpuFallback, ANodeWithoutAGpuKernelRunsOnTheCpu) {
  PIPIT_NEEDS_GPU();
  const Shape shape({3, 5, 7});
  std::mt19937 random(gpu_seed() + 29);  // not what makes k
  const Tensor input = random_tensor(shape, random);
  const Registry registry =
      with_toy([](const NodeSpec&) { return std::make_unique<ToyAddKernel>(4096, true); });
  const Graph graph = mixed_graph(shape);
  std::vector<Tensor> inputs;
  inputs.push_back(input.clone());
  const std::vector<Tensor> expected = run_graph(graph, registry, inputs);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    SCOPED_TRACE(precision_name(precision));
    PlanOptions options = gpu_options(precision);
    const Graph final = precision == Precision::fp32 ? graph : assign_precision(graph, precision).graph;
    EXPECT_THAT([&] { ExecutionPlan::build(final, registry, options); },
                testing::ThrowsMessage<UnsupportedError>(HasSubstr("sum (ToyAdd)")));
    options.allow_fallback = true;
    const auto plan = ExecutionPlan::build(final, registry, options);
    int on_host = 0;
    for (const Step& step : plan->steps()) {
      EXPECT_EQ(step.on_host, step.kernel_name == "cpu:plain") << step.kernel_name;
      on_host += step.on_host ? 1 : 0;
    }
    EXPECT_EQ(on_host, 1);
    const auto results = run_plan(plan, input, 4);
    const auto values = expected[0].values<float>();
    for (const std::vector<float>& result : results)
      EXPECT_LT(relative_error(result, values),
                precision == Precision::fp32 ? 1e-6 : kernel_tolerance(precision));
    Session session(plan);
    const ConstTensorView view = input.view();
    const Profile profile = session.device_session()->profile({&view, 1}, 1, 3, [](int) {});
    EXPECT_EQ(profile.steps.size(), plan->steps().size());
    EXPECT_GT(profile.graph_ms, 0);
    EXPECT_GT(profile.layers_ms, 0);
    for (const StepTime& step : profile.steps) EXPECT_EQ(step.ms.size(), 3U);
  }
}

TEST(GpuFallback, AnErrorOfTheCpuKernelIsThrownOnceAndNamesTheNode) {
  PIPIT_NEEDS_GPU();
  const Shape shape({64});
  int calls = 0;
  const Registry registry = with_toy([&](const NodeSpec&) { return std::make_unique<Throwing>(&calls); });
  PlanOptions options = gpu_options(Precision::fp32);
  options.allow_fallback = true;
  Session session(ExecutionPlan::build(mixed_graph(shape), registry, options));
  std::mt19937 random(gpu_seed() + 3);
  const Tensor input = random_tensor(shape, random);
  const ConstTensorView view = input.view();
  session.run({&view, 1});
  EXPECT_THAT(
      [&] {
        session.run({&view, 1});
      },
      testing::ThrowsMessage<Error>(testing::AllOf(HasSubstr("sum"), HasSubstr("the second run fails"))));
  session.run({&view, 1});
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace pipit::internal::test
