#include "engine/plan/candidate_order.h"
#include "engine/plan/execution_plan.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::toy_registry;
using test::ToyAdd;
using test::ToyView;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

PlanOptions one_thread() {
  PlanOptions options;
  options.threads = 1;
  return options;
}

// x -> n0 -> n1 -> ... each adding x once more.
Graph chain(int length, bool in_place, std::int64_t elements = 64) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({elements})});
  ValueId v = x;
  for (int i = 0; i < length; ++i) {
    v = builder.add1("n" + std::to_string(i), std::make_shared<ToyAdd>(in_place), {v, x});
  }
  builder.mark_output(v);
  return builder.build();
}

TEST(ExecutionPlan, PingPongsBetweenTwoBuffers) {
  const auto plan = ExecutionPlan::build(chain(5, false), toy_registry(), one_thread());
  std::vector<std::size_t> offsets;
  for (const Step& step : plan->steps()) offsets.push_back(step.outputs[0].offset);
  EXPECT_THAT(offsets, testing::ElementsAre(0, 256, 0, 256, 0));
  EXPECT_EQ(plan->arena_bytes(), 512U);
  EXPECT_EQ(plan->peak_live_bytes(), 512U);
  EXPECT_EQ(plan->activation_bytes(), 5U * 256U);
}

TEST(ExecutionPlan, RunsInPlaceWhereTheLayerAllows) {
  const auto plan = ExecutionPlan::build(chain(5, true), toy_registry(), one_thread());
  for (const Step& step : plan->steps()) EXPECT_EQ(step.outputs[0].offset, 0U);
  EXPECT_EQ(plan->arena_bytes(), 256U);
}

TEST(ExecutionPlan, NeverOverwritesAnInputThatIsStillNeeded) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x});
  const ValueId b = builder.add1("b", std::make_shared<ToyAdd>(true), {a});  // a lives on
  const ValueId c = builder.add1("c", std::make_shared<ToyAdd>(true), {b, a});
  builder.mark_output(c);
  const auto plan = ExecutionPlan::build(builder.build(), toy_registry(), one_thread());
  EXPECT_NE(plan->steps()[1].outputs[0].offset, plan->steps()[0].outputs[0].offset);
  EXPECT_EQ(plan->steps()[2].outputs[0].offset, plan->steps()[1].outputs[0].offset);
}

TEST(ExecutionPlan, NeverOverwritesAGraphInputOrConstant) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({1})});
  const ValueId k = builder.add_constant("k", Tensor::from<float>(Shape({1}), std::vector<float>{3}));
  builder.mark_output(builder.add1("a", std::make_shared<ToyAdd>(true), {x, k}));
  const auto plan = ExecutionPlan::build(builder.build(), toy_registry(), one_thread());
  EXPECT_EQ(plan->steps()[0].outputs[0].kind, Placement::Kind::arena);
  EXPECT_EQ(plan->steps()[0].inputs[0].kind, Placement::Kind::input);
  EXPECT_EQ(plan->steps()[0].inputs[1].kind, Placement::Kind::constant);
}

TEST(ExecutionPlan, ViewsShareMemoryAndKeepItAlive) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x});
  const ValueId v = builder.add1("v", std::make_shared<ToyView>(Shape({8, 8})), {a});
  const ValueId b = builder.add1("b", std::make_shared<ToyAdd>(true), {x});  // must not take a's memory
  const ValueId c = builder.add1("c", std::make_shared<ToyAdd>(), {v});
  builder.mark_output(b);
  builder.mark_output(c);
  const auto plan = ExecutionPlan::build(builder.build(), toy_registry(), one_thread());
  EXPECT_EQ(plan->steps().size(), 3U);
  EXPECT_EQ(plan->view_nodes(), 1);
  const Placement& made = plan->steps()[0].outputs[0];
  const Placement& seen = plan->steps()[2].inputs[0];
  EXPECT_EQ(seen.offset, made.offset);
  EXPECT_EQ(seen.desc.shape, Shape({8, 8}));
  EXPECT_NE(plan->steps()[1].outputs[0].offset, made.offset);
}

TEST(ExecutionPlan, ScratchLivesOnlyDuringItsStep) {
  const auto plan = ExecutionPlan::build(chain(3, false), toy_registry(1024), one_thread());
  // Two activations of 256 bytes and the scratch of one step.
  EXPECT_EQ(plan->arena_bytes(), 1024U + 512U);
  for (const Step& step : plan->steps()) {
    EXPECT_TRUE(step.scratch_offset >= step.outputs[0].offset + 256 ||
                step.scratch_offset + 1024 <= step.outputs[0].offset);
  }
}

class SettlingKernel final : public Kernel {
 public:
  bool orders_prior_writes() const override { return true; }
  void run(std::span<const ConstTensorView>, std::span<const TensorView>, const RunContext&) const override {}
};

TEST(ExecutionPlan, InputsAreSettledWhereAKernelThatSettlesLiesBetween) {
  Registry registry = toy_registry();
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"settling",
                [](const NodeSpec& spec) -> Refusal {
                  if (spec.has_input(1)) return "one input";
                  return std::nullopt;
                },
                [](const NodeSpec&) { return std::make_unique<SettlingKernel>(); }});
  PlanOptions options = one_thread();
  options.prefer_kernels = {{"settling"}};
  GraphBuilder builder;
  const auto add = [&](const std::vector<ValueId>& inputs) {
    return builder.add1("n", std::make_shared<ToyAdd>(), inputs);
  };
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  const ValueId a = add({x}), b = add({a});
  const ValueId view = builder.add1("v", std::make_shared<ToyView>(Shape({64})), {a});
  const ValueId c = add({view, b}), d = add({c, view}), e = add({d, c}), f = add({e}), g = add({f, e});
  builder.mark_output(add({g, x}));
  const auto plan = ExecutionPlan::build(builder.build(), registry, options);
  std::vector<unsigned> settled;
  for (const Step& step : plan->steps()) settled.push_back(step.settled);
  // After a, b, c and so on: a is settled when b has been launched, e when f has, x as soon as anything has.
  EXPECT_THAT(settled, testing::ElementsAre(0, 0, 0b01, 0b10, 0, 0, 0b10, 0b10));
}

TEST(ExecutionPlan, RecordsWhoRefusedAndHonoursPreference) {
  const auto plan = ExecutionPlan::build(chain(1, false), toy_registry(), one_thread());
  EXPECT_EQ(plan->steps()[0].kernel_name, "plain");
  ASSERT_EQ(plan->steps()[0].refused.size(), 1U);
  EXPECT_EQ(plan->steps()[0].refused[0].name, "picky");
  EXPECT_EQ(plan->steps()[0].refused[0].reason, "needs 4 elements");
  EXPECT_EQ(ExecutionPlan::build(chain(1, false, 4), toy_registry(), one_thread())->steps()[0].kernel_name,
            "picky");
  PlanOptions prefer = one_thread();
  prefer.prefer_kernels = {{"plain"}};
  EXPECT_EQ(ExecutionPlan::build(chain(1, false, 4), toy_registry(), prefer)->steps()[0].kernel_name,
            "plain");
  // In their order, those for the type first.
  const auto kernel = [&](std::vector<KernelName> kernels, std::int64_t elements) {
    prefer.prefer_kernels = std::move(kernels);
    return ExecutionPlan::build(chain(1, false, elements), toy_registry(), prefer)->steps()[0].kernel_name;
  };
  const std::string type(ToyAdd::kType);
  EXPECT_EQ(kernel({{"picky"}, {"plain"}}, 4), "picky");
  EXPECT_EQ(kernel({{"picky"}, {"plain"}}, 3), "plain");
  EXPECT_EQ(kernel({{"plain"}, {"picky"}}, 4), "plain");
  EXPECT_EQ(kernel({{"picky"}, {"plain", type}}, 4), "plain");
  EXPECT_EQ(kernel({{"plain", "Other"}}, 4), "picky");
}

TEST(ExecutionPlan, ExcludedKernelsAreNotAsked) {
  PlanOptions options = one_thread();
  options.exclude_kernels = {{"picky"}};
  options.prefer_kernels = {{"picky"}};
  const auto plan = ExecutionPlan::build(chain(1, false, 4), toy_registry(), options);
  EXPECT_EQ(plan->steps()[0].kernel_name, "plain");
  ASSERT_EQ(plan->steps()[0].refused.size(), 1U);
  EXPECT_EQ(plan->steps()[0].refused[0].name, "picky");
  EXPECT_EQ(plan->steps()[0].refused[0].reason, "switched off");
  options.exclude_kernels = {{"picky", "Other"}};
  EXPECT_EQ(ExecutionPlan::build(chain(1, false, 4), toy_registry(), options)->steps()[0].kernel_name,
            "picky");
  options.exclude_kernels = {{"picky"}, {"plain"}};
  EXPECT_THROW(ExecutionPlan::build(chain(1, false, 4), toy_registry(), options), UnsupportedError);
}

// Takes any node; `time` of a node and its followers, where it has an estimate.
Candidate estimated(const char* name, std::function<std::optional<double>(const NodeSpec&)> time) {
  Candidate candidate{name, [](const NodeSpec&) -> Refusal { return std::nullopt; },
                      [](const NodeSpec&) { return std::make_unique<test::ToyAddKernel>(0, true); }};
  if (time) {
    candidate.estimate = [time](const NodeSpec& spec) -> std::optional<Estimate> {
      const std::optional<double> t = time(spec);
      return t ? std::optional(Estimate{*t, {}, {}}) : std::nullopt;
    };
  }
  return candidate;
}

TEST(ExecutionPlan, ChoosesTheLeastEstimate) {
  const auto elements = [](double scale) {
    return [scale](const NodeSpec& spec) {
      return std::optional(scale * static_cast<double>(spec.outputs[0].elements()));
    };
  };
  Registry registry;
  registry.add(ToyAdd::kType, DeviceKind::cpu, estimated("slow", elements(2)));
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               estimated("constant", [](const NodeSpec&) { return std::optional(7.0); }));
  registry.add(ToyAdd::kType, DeviceKind::cpu, estimated("fast", elements(1)));
  const auto chosen = [&](std::int64_t size) {
    return ExecutionPlan::build(chain(1, false, size), registry, one_thread())->steps()[0].kernel_name;
  };
  EXPECT_EQ(chosen(4), "fast");
  EXPECT_EQ(chosen(8), "constant");
  const auto plan = ExecutionPlan::build(chain(1, false, 8), registry, one_thread());
  std::vector<std::string> names;
  for (const EstimatedCandidate& e : plan->steps()[0].estimates) names.push_back(e.name);
  EXPECT_THAT(names, testing::ElementsAre("constant", "fast", "slow"));
}

TEST(ExecutionPlan, CandidatesWithoutAnEstimateKeepTheirPlaces) {
  Registry registry;
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               estimated("a", [](const NodeSpec&) { return std::optional(3.0); }));
  registry.add(ToyAdd::kType, DeviceKind::cpu, estimated("unknown", nullptr));
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               estimated("refused", [](const NodeSpec&) { return std::optional<double>(); }));
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               estimated("b", [](const NodeSpec&) { return std::optional(1.0); }));
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               estimated("c", [](const NodeSpec&) { return std::optional(3.0); }));
  const ToyAdd layer(true);
  const TensorDesc x{Shape{4}};
  const TensorDesc* const inputs[] = {&x};
  const std::shared_ptr<const Tensor> none[] = {nullptr};
  const NodeSpec spec{layer, inputs, {&x, 1}, none};
  std::vector<std::string> names;
  for (const OrderedCandidate& c : candidate_order(registry, DeviceKind::cpu, spec))
    names.push_back(c.candidate->name);
  EXPECT_THAT(names, testing::ElementsAre("b", "unknown", "refused", "a", "c"));
}

// What a candidate does not fuse counts as a kernel of its own.
TEST(ExecutionPlan, EstimatesIncludeWhatMayFollow) {
  const auto chosen = [](const Graph& graph, bool keep_every_value) {
    Registry registry;
    registry.add(ToyAdd::kType, DeviceKind::cpu,
                 estimated("alone", [](const NodeSpec&) { return std::optional(10.0); }));
    Candidate fusing = estimated("fusing", [](const NodeSpec& spec) {
      return std::optional(12.0 + static_cast<double>(spec.fusion.followers.size()));
    });
    fusing.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec&) {
      return spec.fusion.followers.empty();
    };
    registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(fusing));
    PlanOptions options = one_thread();
    options.keep_every_value = keep_every_value;
    const auto plan = ExecutionPlan::build(graph, registry, options);
    return plan->steps()[0].estimates;
  };
  // Nodes that may be fused into the one before.
  const auto graph = [](int nodes, bool read_twice) {
    GraphBuilder builder;
    ValueId value = builder.add_input("x", TensorDesc{Shape({64})});
    for (int i = 0; i < nodes; ++i) {
      value = builder.add1(fmt::format("n{}", i), std::make_shared<ToyAdd>(true), {value});
      if (i == 0 && read_twice) builder.mark_output(value);
    }
    builder.mark_output(value);
    return builder.build();
  };
  const auto times = [](const std::vector<EstimatedCandidate>& all) {
    std::vector<std::pair<std::string, double>> result;
    for (const EstimatedCandidate& e : all) result.emplace_back(e.name, e.time);
    return result;
  };
  using testing::ElementsAre;
  using testing::Pair;
  EXPECT_THAT(times(chosen(graph(2, false), false)),
              ElementsAre(Pair("fusing", 12 + 1), Pair("alone", 10 + 10)));
  // The nodes after it may be fused with each other.
  EXPECT_THAT(times(chosen(graph(3, false), false)),
              ElementsAre(Pair("alone", 10 + 12 + 1), Pair("fusing", 12 + 1 + 10)));
  EXPECT_THAT(times(chosen(graph(2, true), false)), ElementsAre(Pair("alone", 10), Pair("fusing", 12)));
  EXPECT_THAT(times(chosen(graph(2, false), true)), ElementsAre(Pair("alone", 10), Pair("fusing", 12)));
}

TEST(ExecutionPlan, NamesEveryNodeWithoutAKernel) {
  Registry registry;
  for (const char* name : {"picky", "other"}) {
    registry.add(ToyAdd::kType, DeviceKind::cpu,
                 {name, [name](const NodeSpec&) -> Refusal { return std::string(name) + " says no"; }, {}});
  }
  EXPECT_THAT(
      [&] { ExecutionPlan::build(chain(2, false), registry, one_thread()); },
      ThrowsMessage<UnsupportedError>(AllOf(
          HasSubstr("n0 (ToyAdd): picky: picky says no; other: other says no"), HasSubstr("n1 (ToyAdd)"))));
  EXPECT_THAT([&] { ExecutionPlan::build(chain(1, false), Registry(), one_thread()); },
              ThrowsMessage<UnsupportedError>(HasSubstr("no kernel is registered")));
}

TEST(ExecutionPlan, RefusesAPrecisionThatTheGraphIsNotIn) {
  for (const Precision precision :
       {Precision::fp16, Precision::int8, Precision::int8_dynamic, Precision::w8, Precision::w4}) {
    PlanOptions options = one_thread();
    options.precision = precision;
    EXPECT_THAT([&] { ExecutionPlan::build(chain(2, false), toy_registry(), options); },
                ThrowsMessage<UnsupportedError>(
                    AllOf(HasSubstr(std::string(precision_name(precision))), HasSubstr("compile()"))));
  }
}

TEST(ExecutionPlan, ReportsTheEarliestOfSeveralFailures) {
  Registry registry;
  std::atomic<int> failed{0};
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"broken", [](const NodeSpec&) -> Refusal { return std::nullopt; },
                [&failed](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                  // The first node's fails after all others.
                  const std::int64_t elements = spec.outputs[0].elements();
                  while (elements == 2 && failed < 3) std::this_thread::yield();
                  ++failed;
                  fail("cannot pack {}", elements);
                }});
  GraphBuilder b;
  for (const std::int64_t elements : {2, 3, 4, 5}) {
    const ValueId x = b.add_input(fmt::format("x{}", elements), TensorDesc{Shape({elements})});
    b.mark_output(b.add1(fmt::format("n{}", elements), std::make_shared<ToyAdd>(), {x}));
  }
  PlanOptions options;
  options.threads = 3;
  EXPECT_THAT(
      [&] { ExecutionPlan::build(b.build(), registry, options); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("node 'n2' (ToyAdd, kernel broken): cannot pack 2")));
}

TEST(ExecutionPlan, RefusesAnArenaAboveTheLimit) {
  PlanOptions options = one_thread();
  options.max_arena_bytes = 300;
  EXPECT_THAT([&] { ExecutionPlan::build(chain(5, false), toy_registry(), options); },
              ThrowsMessage<Error>(HasSubstr("smaller batch")));
}

TEST(ExecutionPlan, ReleasesConstantsThatKernelsPacked) {
  std::weak_ptr<const Tensor> watch;
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({1})});
  {
    auto tensor = std::make_shared<const Tensor>(Tensor::from<float>(Shape({1}), std::vector<float>{3}));
    watch = tensor;
    builder.mark_output(
        builder.add1("a", std::make_shared<ToyAdd>(), {x, builder.add_constant("k", tensor)}));
  }
  const auto plan = ExecutionPlan::build(builder.build(), toy_registry(0, false), one_thread());
  EXPECT_TRUE(watch.expired());
  EXPECT_TRUE(plan->graph().value(plan->graph().nodes()[0].inputs[1]).is_constant());
}

}  // namespace
}  // namespace pipit::internal
