#include "engine/runtime/session.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <thread>

#include "engine/base/clock.h"
#include "engine/runtime/profiler.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::toy_registry;
using test::ToyAdd;
using test::ToyView;

// y = 2 (x + k) through a view, and x itself as a second output.
std::shared_ptr<const ExecutionPlan> small_plan(int threads) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({6})});
  const ValueId k =
      builder.add_constant("k", Tensor::from<float>(Shape({6}), std::vector<float>{1, 2, 3, 4, 5, 6}));
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x, k});
  const ValueId v = builder.add1("v", std::make_shared<ToyView>(Shape({2, 3})), {a});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(true), {v, v}));
  builder.mark_output(x);
  builder.mark_output(k);
  PlanOptions options;
  options.threads = threads;
  return ExecutionPlan::build(builder.build(), toy_registry(256), options);
}

std::vector<float> values(const ConstTensorView& view) {
  return {view.as<float>(), view.as<float>() + view.desc.elements()};
}

TEST(Session, ComputesAndPassesInputsAndConstantsThrough) {
  Session session(small_plan(2));
  const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>{10, 20, 30, 40, 50, 60});
  const ConstTensorView view = x.view();
  for (int run = 0; run < 3; ++run) {
    const auto outputs = session.run({&view, 1});
    ASSERT_EQ(outputs.size(), 3U);
    EXPECT_THAT(values(outputs[0]), testing::ElementsAre(22, 44, 66, 88, 110, 132));
    EXPECT_EQ(outputs[0].desc.shape, Shape({2, 3}));
    EXPECT_EQ(outputs[1].data, view.data);
    EXPECT_THAT(values(outputs[2]), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Session, RefusesWrongInputs) {
  Session session(small_plan(1));
  const Tensor wrong = Tensor::from<float>(Shape({3}), std::vector<float>{1, 2, 3});
  const ConstTensorView view = wrong.view();
  EXPECT_THAT(
      ([&] {
        session.run({&view, 1});
      }),
      testing::ThrowsMessage<Error>(testing::HasSubstr("input 'x' must be f32 6 row_major, got f32 3")));
  EXPECT_THROW(session.run({}), Error);
  const ConstTensorView absent{TensorDesc{Shape({6})}, nullptr};
  EXPECT_THROW(session.run({&absent, 1}), Error);
}

TEST(Session, RefusesAPoolLargerThanThePlan) {
  EXPECT_THROW(Session(small_plan(1), std::make_shared<ThreadPool>(2)), Error);
}

// a = x + x, which b = a + x and a view of it read; c = b + b in place; the outputs are a, b, x, k, c.
std::shared_ptr<const ExecutionPlan> plan_of_outputs(std::int64_t samples = 2,
                                                     std::optional<std::int64_t> micro_batch = 0) {
  GraphBuilder builder;
  const TensorDesc desc{Shape({samples, 3})};
  const ValueId x = builder.add_input("x", desc);
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x, x});
  const ValueId view = builder.add1("view", std::make_shared<ToyView>(Shape({samples, 3, 1})), {a});
  builder.mark_output(a);
  builder.mark_output(builder.add1("b", std::make_shared<ToyAdd>(), {view, view}));
  const ValueId d = builder.add1("d", std::make_shared<ToyAdd>(), {a, x});
  builder.mark_output(builder.add1("c", std::make_shared<ToyAdd>(true), {d}));
  if (!micro_batch || *micro_batch == 0) {
    builder.mark_output(x);
    builder.mark_output(builder.add_constant("k", Tensor::from<float>(Shape({2}), std::vector<float>{7, 8})));
  }
  PlanOptions options;
  options.threads = 2;
  options.micro_batch = micro_batch;
  return ExecutionPlan::build(builder.build(), toy_registry(64), options);
}

// Memory for the outputs of a plan, `shift` floats past what is aligned, filled with NaN.
class OutputMemory {
 public:
  OutputMemory(const ExecutionPlan& plan, std::size_t shift) {
    for (const Placement& output : plan.outputs()) {
      const auto count = static_cast<std::size_t>(output.desc.elements());
      memory_.push_back(Tensor::from<float>(Shape({static_cast<std::int64_t>(count + shift)}),
                                            std::vector<float>(count + shift, NAN)));
      views.push_back({output.desc, memory_.back().view().data + shift * sizeof(float)});
    }
  }
  std::vector<TensorView> views;

 private:
  std::vector<Tensor> memory_;
};

// Where the steps write.
class WrittenPlaces final : public RunObserver {
 public:
  void after_step(const Step&, std::span<const ConstTensorView>,
                  std::span<const TensorView> outputs) override {
    for (const TensorView& output : outputs) places.push_back(output.data);
  }
  bool has(const TensorView& view) const { return std::ranges::find(places, view.data) != places.end(); }
  std::vector<const std::byte*> places;
};

TEST(Session, SteadyStateAllocatesNothing) {
  if (!test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const auto plan = small_plan(2);
  Session session(plan);
  const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>(6, 1));
  const ConstTensorView view = x.view();
  session.run({&view, 1});
  Profiler profiler(*plan, 10);
  long plain = 0;
  {
    const test::AllocationCounter counter;
    for (int run = 0; run < 10; ++run) session.run({&view, 1});
    plain = counter.count();
  }
  EXPECT_EQ(plain, 0);
  const auto with_outputs = plan_of_outputs();
  Session into(with_outputs);
  const Tensor z = Tensor::from<float>(Shape({2, 3}), std::vector<float>(6, 1));
  const ConstTensorView z_view = z.view();
  OutputMemory aligned(*with_outputs, 0), shifted(*with_outputs, 1);
  into.run({&z_view, 1}, aligned.views);
  {
    const test::AllocationCounter counter;
    for (int run = 0; run < 10; ++run) into.run({&z_view, 1}, run % 2 == 0 ? aligned.views : shifted.views);
    EXPECT_EQ(counter.count(), 0);
  }
  session.set_observer(&profiler);
  long profiled = 0;
  {
    const test::AllocationCounter counter;
    for (int run = 0; run < 10; ++run) session.run({&view, 1});
    profiled = counter.count();
  }
  EXPECT_EQ(profiled, 0);
  // The counter itself must see allocations, or the zeros above mean nothing.
  const test::AllocationCounter counter;
  const auto p = std::make_unique<std::vector<int>>(1000);
  EXPECT_GE(counter.count(), 2);
}

#if defined(__SSE__)
class ThrowingKernel final : public Kernel {
 public:
  void run(std::span<const ConstTensorView>, std::span<const TensorView>, const RunContext&) const override {
    fail("on purpose");
  }
};

// y = x + x by the named kernel of a registry with one that throws.
std::shared_ptr<const ExecutionPlan> doubling_plan(const std::string& kernel) {
  Registry registry = toy_registry();
  registry.add(ToyAdd::kType, DeviceKind::cpu,
               {"throws", [](const NodeSpec&) -> Refusal { return std::nullopt; },
                [](const NodeSpec&) { return std::make_unique<ThrowingKernel>(); }});
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(), {x, x}));
  PlanOptions options;
  options.threads = 2;
  options.prefer_kernels = {{kernel}};
  return ExecutionPlan::build(builder.build(), registry, options);
}

TEST(Session, DenormalsAreZeroDuringARunOnly) {
  volatile float smallest = std::numeric_limits<float>::denorm_min();
  const std::vector<float> pixels(64, 1000 * smallest);
  const Tensor x = Tensor::from<float>(Shape({64}), pixels);
  const ConstTensorView view = x.view();
  Session session(doubling_plan(""));
  EXPECT_THAT(values(session.run({&view, 1})[0]), testing::Each(0.0F));
  EXPECT_GT(smallest + smallest, 0.0F);
  Session failing(doubling_plan("throws"));
  EXPECT_THROW(failing.run({&view, 1}), Error);
  EXPECT_GT(smallest + smallest, 0.0F);
}
#endif

TEST(Session, RunsIntoTheCallersMemory) {
  const auto plan = plan_of_outputs();
  Session session(plan);
  for (const std::size_t shift : {0, 1}) {
    for (const float value : {1.0F, 2.0F}) {
      const Tensor x = Tensor::from<float>(Shape({2, 3}), std::vector<float>(6, value));
      const ConstTensorView view = x.view();
      OutputMemory memory(*plan, shift);
      WrittenPlaces written;
      session.set_observer(&written);
      session.run({&view, 1}, memory.views);
      session.set_observer(nullptr);
      EXPECT_THAT(values(memory.views[0]), testing::Each(2 * value));
      EXPECT_THAT(values(memory.views[1]), testing::Each(4 * value));
      EXPECT_THAT(values(memory.views[2]), testing::Each(3 * value));
      EXPECT_THAT(values(memory.views[3]), testing::Each(value));
      EXPECT_THAT(values(memory.views[4]), testing::ElementsAre(7, 8));
      // By the kernels themselves where it is aligned, but not what is computed in place.
      EXPECT_EQ(written.has(memory.views[0]), shift == 0);
      EXPECT_EQ(written.has(memory.views[1]), shift == 0);
      EXPECT_FALSE(written.has(memory.views[2]));
      // Views are again in the session's memory.
      const std::span<const ConstTensorView> own = session.run({&view, 1});
      EXPECT_THAT(values(own[0]), testing::Each(2 * value));
      EXPECT_NE(own[0].data, memory.views[0].data);
    }
  }
}

TEST(Session, RunsMicroBatchesIntoTheCallersMemory) {
  const auto plan = plan_of_outputs(5, 2);
  ASSERT_TRUE(plan->micro_batches().cut());
  Session session(plan);
  std::vector<float> numbers(15);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  const Tensor x = Tensor::from<float>(Shape({5, 3}), numbers);
  const ConstTensorView view = x.view();
  const std::span<const ConstTensorView> own = session.run({&view, 1});
  for (const std::size_t shift : {0, 1}) {
    OutputMemory memory(*plan, shift);
    session.run({&view, 1}, memory.views);
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(values(memory.views[i]), values(own[i]));
  }
}

TEST(Session, RefusesOtherMemoryForOutputs) {
  const auto plan = plan_of_outputs();
  Session session(plan);
  Tensor x = Tensor::from<float>(Shape({2, 3}), std::vector<float>(6, 1));
  const ConstTensorView view = std::as_const(x).view();
  const auto refused = [&](const std::vector<TensorView>& outputs, const char* text) {
    EXPECT_THAT(([&] {
                  session.run({&view, 1}, outputs);
                }),
                testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  OutputMemory memory(*plan, 0);
  const std::vector<TensorView>& good = memory.views;
  std::vector<TensorView> outputs(good.begin(), good.end() - 1);
  refused(outputs, "memory for 4 outputs, the model has 5");
  outputs = good;
  outputs[1].desc.shape = Shape({6});
  refused(outputs, "output 'b' must be f32 2x3x1 row_major, got f32 6");
  outputs = good;
  outputs[1].data = nullptr;
  refused(outputs, "without data");
  outputs = good;
  outputs[0].data = x.view().data + 4;
  refused(outputs, "output 'a' overlaps that of input 'x'");
  outputs = good;
  outputs[2].data = outputs[0].data + 20;
  refused(outputs, "output 'c' overlaps that of output 'a'");
  const std::span<const ConstTensorView> own = session.run({&view, 1});
  outputs = good;
  outputs[0].data = const_cast<std::byte*>(own[0].data);
  refused(outputs, "output 'a' is to be written into the memory of this session");
  for (const TensorView& output : good)
    EXPECT_THAT(values(output), testing::Each(testing::IsNan())) << "nothing is written";
  session.run({&view, 1}, good);
  EXPECT_THAT(values(good[0]), testing::Each(2));
}

TEST(Session, SessionsShareAPool) {
  Session first(small_plan(2));
  Session second(small_plan(2));
  EXPECT_EQ(&first.pool(), &second.pool());
  EXPECT_EQ(Session(small_plan(1)).pool().size(), 1);
}

TEST(Session, TwoSessionsOfOnePlanRunInTwoThreads) {
  const auto plan = small_plan(2);
  const auto pool = std::make_shared<ThreadPool>(2);
  const auto work = [&](float base, bool* ok) {
    Session session(plan, pool);
    const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>(6, base));
    const ConstTensorView view = x.view();
    *ok = true;
    for (int run = 0; run < 2000; ++run) {
      const auto y = values(session.run({&view, 1})[0]);
      for (std::size_t i = 0; i < 6; ++i) *ok = *ok && y[i] == 2 * (base + static_cast<float>(i + 1));
    }
  };
  bool first = false;
  bool second = false;
  std::thread other(work, 100.0F, &first);
  work(200.0F, &second);
  other.join();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

void fill(const TensorView& view, float base) {
  for (std::int64_t i = 0; i < view.desc.elements(); ++i) view.as<float>()[i] = base + static_cast<float>(i);
}

TEST(Session, SlotsGiveWhatRunGives) {
  Session session(small_plan(2));
  Session plain(small_plan(2));
  session.make_slots(3, true);
  EXPECT_EQ(session.slots(), 3);
  EXPECT_FALSE(session.overlaps());
  float base = 1;
  for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 0}, {1}, {1, 2, 0}}) {
    std::map<int, float> given;
    for (const int slot : order) {
      given[slot] = base;
      fill(session.slot_input(slot), base);
      session.submit(slot);
      base *= 1.7F;
    }
    for (const auto& [slot, first] : given) {  // not the order of submission
      Tensor x{TensorDesc{Shape({6})}};
      fill(x.view(), first);
      const ConstTensorView view = x.view();
      const auto expected = plain.run({&view, 1});
      const SlotRun run = session.collect(slot);
      ASSERT_EQ(run.outputs.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(values(run.outputs[i]), values(expected[i])) << "slot " << slot << " output " << i;
      EXPECT_EQ(run.outputs[1].data, session.slot_input(slot).data);  // passed through in place
      EXPECT_GT(run.kernel_ms, 0);
    }
  }
}

TEST(Session, SlotsRefuseCallsOutOfOrder) {
  Session session(small_plan(1));
  const auto expect_error = [](const auto& call, const char* words) {
    EXPECT_THAT(call, testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
  };
  expect_error([&] { session.submit(0); }, "there is no slot 0: the session has 0");
  expect_error([&] { session.make_slots(0); }, "at least 1 slot");
  session.make_slots(2);
  expect_error([&] { session.slot_input(2); }, "there is no slot 2");
  expect_error([&] { session.slot_input(-1); }, "there is no slot -1");
  expect_error([&] { session.slot_input(0, 1); }, "there is no input 1: the model has 1");
  expect_error([&] { session.collect(0); }, "slot 0 was not submitted");
  fill(session.slot_input(1), 0);
  session.submit(1);
  expect_error([&] { session.submit(1); }, "slot 1 is in flight");
  expect_error([&] { session.make_slots(4); }, "slot 1 is in flight");
  session.collect(1);
  expect_error([&] { session.collect(1); }, "slot 1 was not submitted");
  session.make_slots(4);
  EXPECT_EQ(session.slots(), 4);
}

TEST(Session, SlotsAllocateNothingInSteadyState) {
  if (!test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  Session session(small_plan(2));
  session.make_slots(2);
  for (int slot = 0; slot < 2; ++slot) fill(session.slot_input(slot), 1);
  const test::AllocationCounter counter;
  for (int run = 0; run < 10; ++run) {
    session.submit(run % 2);
    session.collect(run % 2);
  }
  EXPECT_EQ(counter.count(), 0);
}

class CountingObserver final : public RunObserver {
 public:
  void before_run() override { ++runs; }
  void before_step(const Step&) override { ++before; }
  void after_step(const Step& step, std::span<const ConstTensorView>,
                  std::span<const TensorView> outputs) override {
    ++after;
    last = outputs[0].as<float>()[0];
    EXPECT_EQ(step.index, (after - 1) % 2);
  }
  int runs = 0, before = 0, after = 0;
  float last = 0;
};

TEST(Session, ObserverSeesEveryStepWithItsOutputs) {
  Session session(small_plan(1));
  CountingObserver observer;
  session.set_observer(&observer);
  const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>(6, 1));
  const ConstTensorView view = x.view();
  session.run({&view, 1});
  session.run({&view, 1});
  EXPECT_EQ(observer.runs, 2);
  EXPECT_EQ(observer.before, 4);
  EXPECT_EQ(observer.after, 4);
  EXPECT_EQ(observer.last, 4.0F);
  session.set_observer(nullptr);
  session.run({&view, 1});
  EXPECT_EQ(observer.after, 4);
}

TEST(Profiler, ExplainsARun) {
  const auto plan = small_plan(1);
  Session session(plan);
  Profiler profiler(*plan, 5);
  EXPECT_THROW(profiler.report(), Error);
  session.set_observer(&profiler);
  const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>(6, 1));
  const ConstTensorView view = x.view();
  for (int run = 0; run < 5; ++run) session.run({&view, 1});
  const Profile profile = profiler.report();
  EXPECT_EQ(profile.runs, 5);
  ASSERT_EQ(profile.steps.size(), 2U);
  EXPECT_GT(profile.steps[0].median_ms, 0);
  EXPECT_GT(profile.end_to_end_ms, 0);
  EXPECT_GT(profile.overhead_ms, 0);
}

TEST(Profiler, KeepsTheRunThatIsNearestToTheMedian) {
  const auto plan = small_plan(1);
  Session session(plan);
  Profiler profiler(*plan, 4);
  session.set_observer(&profiler);
  const Tensor x = Tensor::from<float>(Shape({6}), std::vector<float>(6, 1));
  const ConstTensorView view = x.view();
  for (int run = 0; run < 4; ++run) session.run({&view, 1});
  const Profile profile = profiler.report();
  const auto run = static_cast<std::size_t>(profile.trace.run);
  ASSERT_LT(run, profile.run_ms.size());
  EXPECT_EQ(profile.trace.ms, profile.run_ms[run]);
  for (const double ms : profile.run_ms)
    EXPECT_LE(std::abs(profile.trace.ms - profile.end_to_end_ms), std::abs(ms - profile.end_to_end_ms));
  ASSERT_EQ(profile.trace.calls.size(), 2U);
  double end = 0;
  for (std::size_t s = 0; s < 2; ++s) {
    const TimedCall& call = profile.trace.calls[s];
    EXPECT_EQ(call.step, static_cast<int>(s));
    EXPECT_EQ(call.ms, profile.steps[s].ms[run]);
    EXPECT_GE(call.begin_ms, end);
    end = call.begin_ms + call.ms;
  }
  EXPECT_LE(end, profile.trace.ms);
}

TEST(Profiler, NearestRun) {
  const std::vector<double> ms = {4, 1, 3, 1};
  EXPECT_EQ(nearest_run(ms, 3.4), 2U);
  EXPECT_EQ(nearest_run(ms, 2), 1U);
  EXPECT_EQ(nearest_run(ms, 100), 0U);
}

// One run, so that all times are of the same.
TEST(Profiler, WhatIsOutsideOfStepsIsResidual) {
  const auto plan = small_plan(1);
  const auto pass = [](double ms) {
    for (const auto begin = Clock::now(); milliseconds_since(begin) < ms;) {
    }
  };
  Profiler profiler(*plan, 1);
  profiler.before_run();
  const auto begin = Clock::now();
  for (const Step& step : plan->steps()) {
    profiler.before_step(step);
    pass(2);
    profiler.after_step(step, {}, {});
    pass(1);
  }
  profiler.after_run();
  const double all = milliseconds_since(begin) + 1;
  const Profile profile = profiler.report();
  ASSERT_EQ(profile.steps.size(), 2U);
  for (const StepTime& step : profile.steps) EXPECT_GE(step.median_ms, 2);
  EXPECT_GE(profile.layers_ms, 4);
  EXPECT_GE(profile.residual_ms, 2);
  EXPECT_LE(profile.layers_ms + profile.residual_ms, all);
}

}  // namespace
}  // namespace pipit::internal
