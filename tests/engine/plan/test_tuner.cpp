#include "engine/plan/tuner.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/plan/execution_plan.h"
#include "engine/runtime/session.h"
#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::ToyAdd;
using test::ToyAddKernel;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

// A kernel that says how long it takes.
class TimedToy final : public Kernel {
 public:
  explicit TimedToy(double milliseconds) : ms(milliseconds) {}
  void run(std::span<const ConstTensorView> in, std::span<const TensorView> out,
           const RunContext& context) const override {
    ToyAddKernel(0, true).run(in, out, context);
  }
  double ms;
};

// Believes them, and counts.
struct Log {
  int loads = 0;
  int warm_ups = 0;
  std::map<double, int> runs;  // by the kernel's time
};

class FakeTimer final : public KernelTimer {
 public:
  explicit FakeTimer(Log& log) : log_(log) {}
  void load(const NodeSpec&) override { ++log_.loads; }
  double warm_up(const Kernel& kernel) override {
    ++log_.warm_ups;
    return 10 * ms(kernel);  // a first run is slow
  }
  double time(const Kernel& kernel, int runs) override {
    log_.runs[ms(kernel)] += runs;
    return ms(kernel);
  }

 private:
  static double ms(const Kernel& kernel) {
    const double time = dynamic_cast<const TimedToy&>(kernel).ms;
    if (time < 0) fail("it does not run");
    return time;
  }
  Log& log_;
};

Candidate toy(const std::string& name, double ms) {
  Candidate candidate;
  candidate.name = name;
  candidate.refuse = [](const NodeSpec&) -> Refusal { return std::nullopt; };
  candidate.create = [ms](const NodeSpec&) { return std::make_unique<TimedToy>(ms); };
  return candidate;
}

Registry registry_of(std::vector<Candidate> candidates) {
  Registry registry;
  for (Candidate& c : candidates) registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(c));
  return registry;
}

class TunerTest : public testing::Test {
 protected:
  std::shared_ptr<Tuner> make_tuner(bool measures = true) {
    TunerOptions options;
    options.measures = measures;
    options.build = "test";
    options.make_timer = [this](DeviceKind, const NodeSpec&) { return std::make_unique<FakeTimer>(log_); };
    return std::make_shared<Tuner>(std::move(options));
  }

  // One node per entry, of that many elements.
  std::shared_ptr<const ExecutionPlan> plan(const Registry& registry, std::shared_ptr<Tuner> tuner,
                                            std::vector<std::int64_t> elements = {8},
                                            PlanOptions options = {}) {
    GraphBuilder builder;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const ValueId x = builder.add_input("x" + std::to_string(i), TensorDesc{Shape({elements[i]})});
      builder.mark_output(builder.add1("n" + std::to_string(i), std::make_shared<ToyAdd>(), {x}));
    }
    options.threads = 1;
    options.tuner = std::move(tuner);
    return ExecutionPlan::build(builder.build(), registry, options);
  }

  static std::vector<std::string> timed_names(const Step& step) {
    std::vector<std::string> names;
    for (const TimedKernel& t : step.choice.timed) names.push_back(t.name + t.variant);
    return names;
  }

  Log log_;
};

TEST_F(TunerTest, TheFastestWins) {
  const auto built = plan(registry_of({toy("slow", 2), toy("fast", 1), toy("middle", 1.5)}), make_tuner());
  const Step& step = built->steps()[0];
  EXPECT_EQ(step.kernel_name, "fast");
  EXPECT_EQ(dynamic_cast<const TimedToy&>(*step.kernel).ms, 1);
  EXPECT_EQ(step.choice.by, ChosenBy::measurement);
  EXPECT_THAT(timed_names(step), ElementsAre("slow", "fast", "middle"));
  EXPECT_EQ(step.choice.timed[2].ms, 1.5);
  EXPECT_EQ(built->options().tuner, nullptr);
}

TEST_F(TunerTest, TiesGoToTheEarlier) {
  EXPECT_EQ(plan(registry_of({toy("first", 1), toy("second", 0.98)}), make_tuner())->steps()[0].kernel_name,
            "first");
  EXPECT_EQ(plan(registry_of({toy("first", 1), toy("second", 0.96)}), make_tuner())->steps()[0].kernel_name,
            "second");
}

// A clock on which kernels take what they say times what the machine does at that turn.
class NoisyTimer final : public KernelTimer {
 public:
  NoisyTimer(std::map<double, std::vector<double>> factors) : factors_(std::move(factors)) {}
  void load(const NodeSpec&) override {}
  double warm_up(const Kernel& kernel) override { return ms_of(kernel); }
  double time(const Kernel& kernel, int) override {
    const double ms = ms_of(kernel);
    const std::vector<double>& factors = factors_.at(ms);
    return ms * factors[turns_[ms]++ % factors.size()];
  }

 private:
  static double ms_of(const Kernel& kernel) { return dynamic_cast<const TimedToy&>(kernel).ms; }
  std::map<double, std::vector<double>> factors_;  // by the kernel's time; the first is that of its estimate
  std::map<double, std::size_t> turns_;
};

TEST_F(TunerTest, OnlyAnIntervalTakesTheNodeFromTheRule) {
  const auto chosen = [&](std::vector<double> rule, std::vector<double> other) {
    TunerOptions tuning;
    tuning.make_timer = [&](DeviceKind, const NodeSpec&) {
      return std::make_unique<NoisyTimer>(std::map<double, std::vector<double>>{{1, rule}, {0.9, other}});
    };
    return plan(registry_of({toy("rule", 1), toy("other", 0.9)}), std::make_shared<Tuner>(std::move(tuning)))
        ->steps()[0]
        .kernel_name;
  };
  EXPECT_EQ(chosen({1}, {1}), "other");
  EXPECT_EQ(chosen({1, 1.01, 1, 0.99}, {1, 0.99, 1.02, 1.01}), "other");
  // Its least time is the least of all, and its mean is, too; but it varies more than that.
  EXPECT_EQ(chosen({1}, {1, 0.7, 1.2, 1.1, 0.95, 1.2}), "rule");
  EXPECT_EQ(chosen({1, 1.3, 1, 1, 1.25, 1}, {1, 1.15, 1.08, 1.1, 1, 1.12}), "rule");
  // The machine slows both down at some turns: the difference is as sure.
  EXPECT_EQ(chosen({1, 1, 1, 1, 1, 1, 2, 1.5, 3, 1, 2}, {1, 2, 1.5, 3, 1, 2}), "other");
}

TEST_F(TunerTest, NodesWhoseKernelsKeepOtherSharesAreTimedApart) {
  std::vector<double> shares{1, 0.5, 0.25, 0.2504, 1};
  Candidate pruned = toy("pruned", 1);
  pruned.kept_share = [&shares](const NodeSpec&) {
    const double share = shares.back();
    shares.pop_back();
    return share;
  };
  const auto tuner = make_tuner();
  plan(registry_of({toy("dense", 2), pruned}), tuner, {8, 8, 8, 8, 8});
  EXPECT_TRUE(shares.empty());
  EXPECT_EQ(log_.loads, 3) << "all, a half and a quarter";
  const auto made = tuner->decisions();
  ASSERT_EQ(made.size(), 1U);
  std::vector<std::string> keys;
  for (const auto& entry : made.begin()->second) keys.push_back(entry.first);
  EXPECT_THAT(
      keys, testing::UnorderedElementsAre(testing::Not(HasSubstr("keeps")), HasSubstr("; pruned keeps 25 %"),
                                          HasSubstr("; pruned keeps 50 %")));
}

TEST_F(TunerTest, WhatIsSlowToMakeIsAskedOnlyWhereItComesFirst) {
  int asked = 0;
  const auto slow = [&asked](double ms) {
    Candidate candidate = toy("library", ms);
    candidate.slow_to_make = true;
    candidate.refuse = [&asked](const NodeSpec&) -> Refusal {
      ++asked;
      return std::nullopt;
    };
    return candidate;
  };
  const auto behind = plan(registry_of({toy("own", 2), slow(1)}), make_tuner());
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(behind->steps()[0].kernel_name, "own");
  ASSERT_EQ(behind->steps()[0].refused.size(), 1U);
  EXPECT_EQ(behind->steps()[0].refused[0].name, "library");
  EXPECT_EQ(plan(registry_of({slow(1), toy("own", 2)}), make_tuner())->steps()[0].kernel_name, "library");
  PlanOptions preferred;
  preferred.prefer_kernels = {{"library"}};
  EXPECT_EQ(plan(registry_of({toy("own", 1), slow(2)}), make_tuner(), {8}, preferred)->steps()[0].kernel_name,
            "library");
}

TEST_F(TunerTest, HopelessOnesAreGivenUpAfterTheEstimate) {
  const auto built = plan(registry_of({toy("fast", 1), toy("hopeless", 4)}), make_tuner());
  EXPECT_EQ(built->steps()[0].kernel_name, "fast");
  EXPECT_EQ(built->steps()[0].choice.timed[1].ms, 4);
  EXPECT_EQ(log_.runs[4], 1);
  EXPECT_GT(log_.runs[1], 1);
}

// Turns of a millisecond are not repeated: one run for the estimate, then one a turn.
TEST_F(TunerTest, ThoseBehindAreGivenUpTurnByTurn) {
  plan(registry_of({toy("fast", 1), toy("far behind", 1.4), toy("behind", 1.12), toy("near", 1.05)}),
       make_tuner());
  EXPECT_EQ(log_.runs[1.4], 1 + 1);
  EXPECT_EQ(log_.runs[1.12], 1 + 3);
  EXPECT_EQ(log_.runs[1.05], 1 + 5);
}

TEST_F(TunerTest, TheTimeForANodeIsBounded) {
  std::vector<Candidate> many;
  for (int i = 0; i < 10; ++i) many.push_back(toy("k" + std::to_string(i), 1000 + i));
  const auto built = plan(registry_of(std::move(many)), make_tuner());
  EXPECT_EQ(built->steps()[0].kernel_name, "k0");
  EXPECT_THAT(built->steps()[0].choice.timed.back().problem, HasSubstr("used up"));
  EXPECT_LT(log_.warm_ups, 5);
}

TEST_F(TunerTest, TheReferenceIsTimedOnlyAlone) {
  EXPECT_THAT(
      timed_names(
          plan(registry_of({toy("a", 2), toy("b", 3), toy(kReference, 1)}), make_tuner())->steps()[0]),
      ElementsAre("a", "b"));
  const auto built = plan(registry_of({toy("a", 2), toy(kReference, 1)}), make_tuner());
  EXPECT_EQ(built->steps()[0].choice.by, ChosenBy::order);
  EXPECT_THAT(built->steps()[0].choice.timed, IsEmpty());
}

TEST_F(TunerTest, VariantsCompeteAndTheWinnerIsCreated) {
  Candidate tiles = toy("tiles", 0);
  tiles.variants = [](const NodeSpec&) { return std::vector<std::string>{"9", "3", "5"}; };
  tiles.create = [](const NodeSpec& spec) {
    return std::make_unique<TimedToy>(spec.variant.empty() ? 9 : std::stod(std::string(spec.variant)));
  };
  const auto built = plan(registry_of({toy("plain", 4), tiles}), make_tuner(), {8, 8});
  for (const Step& step : built->steps()) {
    EXPECT_EQ(step.kernel_name, "tiles");
    EXPECT_EQ(step.variant, "3");
    EXPECT_EQ(dynamic_cast<const TimedToy&>(*step.kernel).ms, 3);  // the second is made anew
  }
  EXPECT_EQ(plan(registry_of({tiles}), nullptr)->steps()[0].variant, "");
}

TEST_F(TunerTest, EqualNodesAreTimedOnce) {
  const auto tuner = make_tuner();
  const Registry registry = registry_of({toy("a", 2), toy("b", 1)});
  const auto built = plan(registry, tuner, {8, 8, 9, 8});
  EXPECT_EQ(log_.loads, 2);
  for (const Step& step : built->steps()) EXPECT_EQ(step.choice.by, ChosenBy::measurement);
  plan(registry, tuner, {9});
  EXPECT_EQ(log_.loads, 2);
}

TEST_F(TunerTest, WithoutMeasuringOnlyWhatWasDecidedBeforeCounts) {
  const Registry registry = registry_of({toy("a", 2), toy("b", 1)});
  const auto first = make_tuner();
  plan(registry, first);
  EXPECT_EQ(log_.loads, 1);
  const auto given = make_tuner(false);
  for (const auto& [device, decisions] : first->decisions()) given->add_decisions(device, decisions);
  const auto built = plan(registry, given, {8, 9});
  EXPECT_EQ(built->steps()[0].kernel_name, "b");
  EXPECT_EQ(built->steps()[0].choice.by, ChosenBy::cache);
  EXPECT_EQ(built->steps()[1].kernel_name, "a");
  EXPECT_EQ(built->steps()[1].choice.by, ChosenBy::order);
  EXPECT_EQ(log_.loads, 1) << "nothing more was timed";
  EXPECT_THAT(given->decisions(),
              Each(Field(&std::pair<const std::string, Tuner::Decisions>::second, IsEmpty())));
}

TEST_F(TunerTest, WhatFailsIsPassedOver) {
  Candidate broken = toy("broken", 1);
  broken.create = [](const NodeSpec&) -> std::unique_ptr<Kernel> { fail("no memory"); };
  auto built = plan(registry_of({broken, toy("crashes", -1), toy("works", 2)}), make_tuner());
  EXPECT_EQ(built->steps()[0].kernel_name, "works");
  EXPECT_EQ(built->steps()[0].choice.timed[0].problem, "no memory");
  EXPECT_EQ(built->steps()[0].choice.timed[1].problem, "it does not run");
  EXPECT_THAT(
      [&] {
        plan(registry_of({broken, toy("crashes", -1)}), make_tuner());
      },
      testing::ThrowsMessage<Error>(HasSubstr("kernel broken): no memory")));
}

TEST_F(TunerTest, APreferenceIsNotMeasured) {
  PlanOptions options;
  options.prefer_kernels = {{"slow"}};
  const Registry registry = registry_of({toy("fast", 1), toy("slow", 2), toy("slowest", 3)});
  auto built = plan(registry, make_tuner(), {8}, options);
  EXPECT_EQ(built->steps()[0].kernel_name, "slow");
  EXPECT_EQ(built->steps()[0].choice.by, ChosenBy::preference);
  EXPECT_EQ(log_.loads, 0);
  options.prefer_kernels.push_back({"slowest", "ToyAdd"});
  EXPECT_EQ(plan(registry, nullptr, {8}, options)->steps()[0].kernel_name, "slowest");
  options.prefer_kernels = {{"slowest", "Other"}, {"slow"}};
  EXPECT_EQ(plan(registry, nullptr, {8}, options)->steps()[0].kernel_name, "slow");
}

TEST_F(TunerTest, APreferredKernelThatRefusesIsListedAndTheOthersCompete) {
  Candidate picky = toy("picky", 0.1);
  picky.refuse = [](const NodeSpec&) -> Refusal { return "not this one"; };
  PlanOptions options;
  options.prefer_kernels = {{"picky", "ToyAdd"}};
  const auto built = plan(registry_of({toy("a", 2), toy("b", 1), picky}), make_tuner(), {8}, options);
  EXPECT_EQ(built->steps()[0].kernel_name, "b");
  EXPECT_EQ(built->steps()[0].choice.by, ChosenBy::measurement);
  ASSERT_EQ(built->steps()[0].refused.size(), 1U);
  EXPECT_EQ(built->steps()[0].refused[0].name, "picky");
}

TEST_F(TunerTest, WithoutATunerNobodyIsAskedAfterTheFirstThatAccepts) {
  int asked = 0;
  Candidate last = toy("last", 1);
  last.refuse = [&](const NodeSpec&) -> Refusal {
    ++asked;
    return std::nullopt;
  };
  const Registry registry = registry_of({toy("first", 1), last});
  plan(registry, nullptr);
  EXPECT_EQ(asked, 0);
  plan(registry, make_tuner());
  EXPECT_EQ(asked, 1);
}

TEST_F(TunerTest, DecisionsTravelToAnotherTuner) {
  const Registry registry = registry_of({toy("a", 2), toy("b", 1)});
  const auto first = make_tuner();
  plan(registry, first);
  const auto all = first->decisions();
  ASSERT_EQ(all.size(), 1U);
  const auto& [device, decisions] = *all.begin();
  EXPECT_EQ(device, first->device_key(DeviceKind::cpu, 0, 1));
  EXPECT_THAT(device, HasSubstr("test"));

  const auto second = make_tuner();
  second->add_decisions(device, decisions);
  auto built = plan(registry, second);
  EXPECT_EQ(log_.loads, 1);
  EXPECT_EQ(built->steps()[0].kernel_name, "b");
  EXPECT_EQ(built->steps()[0].choice.by, ChosenBy::cache);
  EXPECT_THAT(timed_names(built->steps()[0]), ElementsAre("a", "b"));

  const auto elsewhere = make_tuner();
  elsewhere->add_decisions("another device", decisions);
  plan(registry, elsewhere);
  EXPECT_EQ(log_.loads, 2);
}

TEST_F(TunerTest, ADecisionForAKernelThatIsGoneIsMadeAnew) {
  const auto tuner = make_tuner();
  plan(registry_of({toy("a", 2), toy("gone", 1)}), tuner);
  const auto built = plan(registry_of({toy("a", 2), toy("new", 1.5)}), tuner);
  EXPECT_EQ(built->steps()[0].kernel_name, "new");
  EXPECT_EQ(log_.loads, 2);
}

TEST_F(TunerTest, NodesWithIndicesGoByOrder) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({8}), DType::i64});
  builder.mark_output(builder.add1("n", std::make_shared<ToyAdd>(), {x}));
  PlanOptions options;
  options.threads = 1;
  options.tuner = make_tuner();
  const auto built = ExecutionPlan::build(builder.build(), registry_of({toy("a", 2), toy("b", 1)}), options);
  EXPECT_EQ(built->steps()[0].kernel_name, "a");
  EXPECT_THAT(built->steps()[0].choice.note, HasSubstr("i64"));
  EXPECT_EQ(log_.loads, 0);
}

TEST(CpuTimer, TimesARealKernelOnFiniteData) {
  const ToyAdd layer;
  const TensorDesc desc{Shape({1000})};
  const TensorDesc* const input = &desc;
  const std::vector<std::shared_ptr<const Tensor>> constants(1);
  const NodeSpec spec{layer, {&input, 1}, {&desc, 1}, constants};
  const auto timer = make_cpu_timer(2);
  timer->load(spec);
  const ToyAddKernel kernel(4096, true);
  EXPECT_GT(timer->warm_up(kernel), 0);
  EXPECT_GT(timer->time(kernel, 3), 0);
}

TEST(FillOperand, HasNeitherDenormalsNorZeroDivisors) {
  for (const DType type :
       {DType::f32, DType::f64, DType::f16, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
    Tensor tensor(TensorDesc{Shape({10000}), type});
    std::memset(tensor.view().data, 0xFF, tensor.desc().bytes());
    fill_operand(tensor.view());
    std::map<double, int> values;
    for (std::int64_t i = 0; i < 10000; ++i) {
      const double v = type == DType::f32   ? static_cast<double>(tensor.values<float>()[i])
                       : type == DType::f64 ? tensor.values<double>()[i]
                       : type == DType::f16 ? static_cast<double>(to_float(tensor.values<Half>()[i]))
                       : type == DType::i8  ? tensor.values<std::int8_t>()[i]
                       : type == DType::u8  ? tensor.values<std::uint8_t>()[i]
                       : type == DType::i32 ? tensor.values<std::int32_t>()[i]
                       : type == DType::i64 ? static_cast<double>(tensor.values<std::int64_t>()[i])
                                            : static_cast<double>(tensor.values<bool>()[i]);
      ++values[v];
    }
    const bool real = type == DType::f32 || type == DType::f64 || type == DType::f16;
    for (const auto& [v, count] : values) {
      EXPECT_TRUE(real ? v == 0 || std::abs(v) >= 0x1p-12 : v >= 1 && v <= 127) << v;
      EXPECT_LE(std::abs(v), real ? 1 : 127);
    }
    EXPECT_GT(values.size(), real ? 4000U : 0U);
  }
}

}  // namespace
}  // namespace pipit::internal
