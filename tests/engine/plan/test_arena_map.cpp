#include "engine/plan/arena_map.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/support/seed.h"
#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

using test::toy_registry;
using test::ToyAdd;
using test::ToyView;
using testing::ElementsAre;

std::shared_ptr<const ExecutionPlan> arena_plan(Graph graph, std::size_t scratch = 0,
                                                std::optional<std::int64_t> micro_batch = {}) {
  PlanOptions options;
  options.threads = 1;
  options.micro_batch = micro_batch;
  return ExecutionPlan::build(std::move(graph), toy_registry(scratch), options);
}

std::vector<std::array<int, 3>> extents(const std::vector<ArenaBlock>& blocks) {
  std::vector<std::array<int, 3>> all;
  for (const ArenaBlock& b : blocks) all.push_back({b.first, b.last, static_cast<int>(b.bytes)});
  return all;
}

using Extent = std::array<int, 3>;

TEST(ArenaMap, ABlockLastsFromItsStepToItsLastReader) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x});
  const ValueId v = builder.add1("v", std::make_shared<ToyView>(Shape({8, 8})), {a});
  const ValueId b = builder.add1("b", std::make_shared<ToyAdd>(), {v});
  const ValueId c = builder.add1("c", std::make_shared<ToyAdd>(), {b});
  const ValueId d = builder.add1("d", std::make_shared<ToyAdd>(), {c, v});  // a through its view
  builder.mark_output(b);
  builder.mark_output(d);
  const auto plan = arena_plan(builder.build());
  const std::vector<ArenaBlock> blocks = arena_blocks(*plan);
  EXPECT_THAT(extents(blocks),
              ElementsAre(Extent{0, 3, 256}, Extent{1, 3, 256}, Extent{2, 3, 256}, Extent{3, 3, 256}));
  EXPECT_THAT(live_bytes(*plan, blocks), ElementsAre(256, 512, 768, 1024));
}

TEST(ArenaMap, WhatIsOverwrittenCountsOnce) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x});
  const ValueId b = builder.add1("b", std::make_shared<ToyAdd>(true), {a});
  builder.mark_output(builder.add1("c", std::make_shared<ToyAdd>(true), {b}));
  const auto plan = arena_plan(builder.build());
  const std::vector<ArenaBlock> blocks = arena_blocks(*plan);
  EXPECT_THAT(extents(blocks), ElementsAre(Extent{0, 1, 256}, Extent{1, 2, 256}, Extent{2, 2, 256}));
  EXPECT_THAT(live_bytes(*plan, blocks), ElementsAre(256, 256, 256));
}

TEST(ArenaMap, ScratchLastsOneStep) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({64})});
  builder.mark_output(builder.add1("a", std::make_shared<ToyAdd>(), {x}));
  const auto plan = arena_plan(builder.build(), 1024);
  const std::vector<ArenaBlock> blocks = arena_blocks(*plan);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_TRUE(blocks[1].scratch);
  EXPECT_THAT(live_bytes(*plan, blocks), ElementsAre(1024 + 256));
}

TEST(ArenaMap, OutputsOfAWholeBatchLastThroughout) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({8, 16})});
  const ValueId a = builder.add1("a", std::make_shared<ToyAdd>(), {x});
  builder.mark_output(builder.add1("b", std::make_shared<ToyAdd>(), {a}));
  const auto plan = arena_plan(builder.build(), 0, 2);
  ASSERT_TRUE(plan->micro_batches().cut());
  const std::vector<ArenaBlock> blocks = arena_blocks(*plan);
  EXPECT_THAT(extents(blocks), ElementsAre(Extent{0, 1, 512}, Extent{0, 1, 128}, Extent{1, 1, 128}));
}

// The planner knows how much must be alive at worst, from the graph; the map finds it from what steps read and write.
TEST(ArenaMap, HoldsWhatThePlannerReckonedWith) {
  std::mt19937 random(test::test_seed());
  for (int round = 0; round < 200; ++round) {
    GraphBuilder builder;
    std::vector<ValueId> values = {builder.add_input("x", TensorDesc{Shape({64})})};
    const auto any = [&] { return values[random() % values.size()]; };
    const int nodes = 2 + static_cast<int>(random() % 12);
    std::vector<ValueId> unread;
    for (int n = 0; n < nodes; ++n) {
      const ValueId a = any(), b = any();
      values.push_back(
          builder.add1("n" + std::to_string(n), std::make_shared<ToyAdd>(random() % 2 == 0), {a, b}));
      std::erase_if(unread, [&](ValueId v) { return v == a || v == b; });
      unread.push_back(values.back());
    }
    for (const ValueId v : unread) builder.mark_output(v);
    const auto plan = arena_plan(builder.build(), random() % 2 == 0 ? 0 : 192);
    const std::vector<ArenaBlock> blocks = arena_blocks(*plan);
    for (const ArenaBlock& block : blocks) EXPECT_LE(block.offset + block.bytes, plan->arena_bytes());
    EXPECT_EQ(std::ranges::max(live_bytes(*plan, blocks)), plan->peak_live_bytes()) << "round " << round;
  }
}

}  // namespace
}  // namespace pipit::internal
