#include "engine/plan/micro_batch.h"

#include <gmock/gmock.h>

#include <numeric>

#include "engine/runtime/profiler.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::toy_registry;
using test::ToyAdd;
using test::ToyView;
using ::testing::HasSubstr;

// Outputs for x [samples, 6]: y = 4 x through a view, x itself, and a view of an intermediate value.
Graph doubling(std::int64_t samples) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({samples, 6})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x, x});
  const ValueId v = builder.add1("v", std::make_shared<ToyView>(Shape({samples, 2, 3})), {a});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(true), {v, v}));
  builder.mark_output(x);
  builder.mark_output(v);
  return builder.build();
}

std::shared_ptr<const ExecutionPlan> plan_of(Graph graph, std::optional<std::int64_t> micro_batch,
                                             bool keep_every_value = false) {
  PlanOptions options;
  options.threads = 2;
  options.micro_batch = micro_batch;
  options.keep_every_value = keep_every_value;
  return ExecutionPlan::build(std::move(graph), toy_registry(256), options);
}

Tensor numbers(const Shape& shape) {
  Tensor t{TensorDesc{shape}};
  std::iota(t.values<float>().begin(), t.values<float>().end(), 1.0F);
  return t;
}

TEST(MicroBatches, TheLastBeginsEarlyEnough) {
  const MicroBatches batches{7, 3, ""};
  EXPECT_EQ(batches.count(), 3);
  EXPECT_EQ(batches.first(0), 0);
  EXPECT_EQ(batches.first(1), 3);
  EXPECT_EQ(batches.first(2), 4);
  EXPECT_TRUE(batches.cut());
  EXPECT_FALSE(MicroBatches{}.cut());
  EXPECT_EQ(MicroBatches{}.count(), 1);
}

TEST(MicroBatches, GiveTheOutputsOfAWholeRun) {
  const Tensor x = numbers(Shape({7, 6}));
  const ConstTensorView view = x.view();
  for (const std::int64_t size : {0, 1, 2, 3, 6, 7, 100}) {
    SCOPED_TRACE(size);
    const auto plan = plan_of(doubling(7), size);
    EXPECT_EQ(plan->micro_batches().cut(), size > 0 && size < 7);
    EXPECT_EQ(plan->graph().value(plan->graph().nodes()[0].outputs[0]).desc.shape, Shape({7, 6}));
    Session session(plan);
    for (int run = 0; run < 2; ++run) {  // the second on an arena full of the first's values
      const auto outputs = session.run({&view, 1});
      ASSERT_EQ(outputs[0].desc.shape, Shape({7, 2, 3}));
      ASSERT_EQ(outputs[2].desc.shape, Shape({7, 2, 3}));
      EXPECT_EQ(outputs[1].data, view.data);
      for (int i = 0; i < 42; ++i) {
        ASSERT_EQ(outputs[0].as<float>()[i], 4.0F * static_cast<float>(i + 1));
        ASSERT_EQ(outputs[2].as<float>()[i], 2.0F * static_cast<float>(i + 1));
      }
    }
  }
}

TEST(MicroBatches, NeedLessMemory) {
  const auto chain = [] {
    GraphBuilder builder;
    ValueId x = builder.add_input("x", TensorDesc{Shape({64, 6})});
    for (int i = 0; i < 4; ++i) x = builder.add1("a", std::make_shared<ToyAdd>(), {x, x});
    builder.mark_output(x);
    return builder.build();
  };
  const auto whole = plan_of(chain(), 0);
  const auto cut = plan_of(chain(), 4);
  EXPECT_EQ(whole->arena_bytes(), 2U * 1536 + 256);
  EXPECT_EQ(cut->arena_bytes(), 2U * 128 + 256 + 1536);  // the output is whole
  EXPECT_GE(cut->arena_bytes(), cut->peak_live_bytes());
  EXPECT_EQ(cut->activation_bytes(), whole->activation_bytes());
}

TEST(MicroBatches, AreNotMadeForObserversOfWholeValues) {
  EXPECT_FALSE(plan_of(doubling(4), 2, true)->micro_batches().cut());
}

TEST(MicroBatches, ProfilesAddUp) {
  const auto plan = plan_of(doubling(7), 2);
  Session session(plan);
  const Tensor x = numbers(Shape({7, 6}));
  const ConstTensorView view = x.view();
  const Profile profile = profile_session(session, {&view, 1}, 1, 1);
  ASSERT_EQ(profile.steps.size(), plan->steps().size());
  EXPECT_EQ(profile.runs, 1);  // medians of several would be of different runs
  for (const StepTime& step : profile.steps) EXPECT_GT(step.median_ms, 0);
  EXPECT_LE(profile.layers_ms, profile.end_to_end_ms);
}

TEST(MicroBatches, AllocateNothing) {
  if (!test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const auto plan = plan_of(doubling(7), 2);
  Session session(plan);
  const Tensor x = numbers(Shape({7, 6}));
  const ConstTensorView view = x.view();
  session.run({&view, 1});
  Profiler profiler(*plan, 3);
  session.set_observer(&profiler);
  const test::AllocationCounter counter;
  for (int run = 0; run < 3; ++run) session.run({&view, 1});
  EXPECT_EQ(counter.count(), 0);
}

void expect_obstacle(const Graph& graph, const std::string& text) {
  EXPECT_THAT(find_samples(graph).obstacle, HasSubstr(text));
  EXPECT_THAT(plan_of(graph, std::nullopt)->micro_batches().why, HasSubstr(text));
  EXPECT_THAT([&] { plan_of(graph, 2); }, testing::ThrowsMessage<Error>(HasSubstr(text)));
  EXPECT_FALSE(plan_of(graph, 0)->micro_batches().cut());
}

TEST(Samples, ALayerThatMixesThem) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4, 6})});
  const ValueId v = builder.add1("mix", std::make_shared<ToyView>(Shape({2, 12})), {x});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(), {v}));
  expect_obstacle(builder.build(), "'mix' (ToyView)");
}

TEST(Samples, InputsThatDisagree) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4, 6})});
  const ValueId z = builder.add_input("z", TensorDesc{Shape({3, 6})});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(), {x}));
  builder.mark_output(builder.add1("w", std::make_shared<ToyAdd>(), {z}));
  expect_obstacle(builder.build(), "input 'z' is 3x6");
}

TEST(Samples, AnOutputForAll) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({4, 6})});
  builder.mark_output(builder.add1("y", std::make_shared<ToyAdd>(), {x}));
  builder.mark_output(builder.add_constant("k", Tensor::from<float>(Shape({1}), std::vector<float>{1})));
  expect_obstacle(builder.build(), "output 'k'");
}

TEST(Samples, ABatchOfOneIsWhole) {
  EXPECT_THAT(find_samples(doubling(1)).obstacle, HasSubstr("batch is 1"));
  EXPECT_FALSE(plan_of(doubling(1), 4)->micro_batches().cut());
}

TEST(MicroBatches, AreChosenForTheCaches) {
  const auto chosen = [](std::int64_t samples, int threads, std::int64_t width = 6) {
    GraphBuilder builder;
    const ValueId x = builder.add_input("x", TensorDesc{Shape({samples, width})});
    builder.mark_output(
        builder.add1("y", std::make_shared<ToyAdd>(), {builder.add1("a", std::make_shared<ToyAdd>(), {x})}));
    const Graph graph = builder.build();
    return choose_micro_batches(graph, find_samples(graph), std::nullopt, threads);
  };
  EXPECT_FALSE(chosen(64, 1).cut());                 // all of it is small
  const std::int64_t large = std::int64_t{1} << 28;  // beyond any second-level cache
  EXPECT_EQ(chosen(4, 1, large).size, 1);
  EXPECT_EQ(chosen(4, 1, large).count(), 4);
  // With many threads more of them, and few are computed twice.
  const std::int64_t wide = std::int64_t{1} << 20;
  EXPECT_LT(chosen(1000, 1, wide).size, chosen(1000, 16, wide).size);
  for (const int threads : {1, 2, 16}) {
    const MicroBatches batches = chosen(1000, threads, wide);
    EXPECT_TRUE(batches.cut());
    EXPECT_LE(batches.count() * batches.size, 1000 + 1000 / 16);
  }
}

TEST(Samples, LiveBytes) {
  const Graph graph = doubling(8);
  // Value a while y is made of its view in other memory.
  EXPECT_EQ(live_bytes_per_sample(graph, find_samples(graph)), 2 * 64);  // of 24 bytes each, aligned
}

}  // namespace
}  // namespace pipit::internal
