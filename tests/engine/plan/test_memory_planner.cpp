#include "engine/plan/memory_planner.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

using testing::ElementsAre;

TEST(MemoryPlanner, DisjointRangesShareMemory) {
  const std::vector<LiveRange> ranges = {{64, 0, 1}, {64, 1, 2}, {64, 2, 3}};
  const MemoryPlan plan = plan_memory(ranges);
  EXPECT_THAT(plan.offsets, ElementsAre(0, 64, 0));
  EXPECT_EQ(plan.arena_bytes, 128U);
  EXPECT_EQ(peak_live_bytes(ranges), 128U);
}

TEST(MemoryPlanner, SizesAreRoundedUpAndEmptyBuffersCostNothing) {
  const std::vector<LiveRange> ranges = {{1, 0, 0}, {65, 0, 0}, {0, 0, 0}};
  const MemoryPlan plan = plan_memory(ranges);
  EXPECT_THAT(plan.offsets, ElementsAre(128, 0, 0));
  EXPECT_EQ(plan.arena_bytes, 192U);
}

// A chain of three tensors with a skip connection: the largest lies at 0, the skip beside it, and the small
// ones fill the tightest gap rather than the end.
TEST(MemoryPlanner, FillsTheTightestGap) {
  const std::vector<LiveRange> ranges = {
      {256, 0, 1},   // a
      {1024, 1, 2},  // b, beside a
      {128, 2, 3},   // c: fits in a's place, at 1024
      {640, 3, 4},   // d: b's place is free
      {64, 3, 4},    // e
  };
  const MemoryPlan plan = plan_memory(ranges);
  EXPECT_THAT(plan.offsets, ElementsAre(1024, 0, 1024, 0, 640));
  EXPECT_EQ(plan.arena_bytes, 1280U);
  EXPECT_EQ(peak_live_bytes(ranges), 1280U);
}

TEST(MemoryPlanner, PrefersTheTightestOfTwoGaps) {
  // At step 2 the second and fourth buffer are gone and leave gaps of 512 (at 1024) and 384 (at 1984).
  const std::vector<LiveRange> ranges = {
      {1024, 0, 2}, {512, 0, 1}, {448, 0, 2}, {384, 0, 1}, {320, 0, 2}, {256, 2, 2},
  };
  const MemoryPlan plan = plan_memory(ranges);
  EXPECT_THAT(plan.offsets, ElementsAre(0, 1024, 1536, 1984, 2368, 1984));
}

TEST(MemoryPlanner, RandomPlansNeverOverlap) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << test::test_seed());
  std::mt19937 random(test::test_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<LiveRange> ranges(1 + random() % 40);
    for (LiveRange& r : ranges) {
      r.bytes = random() % 5000;
      r.first = static_cast<int>(random() % 20);
      r.last = r.first + static_cast<int>(random() % 6);
    }
    const MemoryPlan plan = plan_memory(ranges);
    ASSERT_GE(plan.arena_bytes, peak_live_bytes(ranges));
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      ASSERT_EQ(plan.offsets[i] % kArenaAlignment, 0U);
      ASSERT_LE(plan.offsets[i] + ranges[i].bytes, plan.arena_bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = ranges[i].first <= ranges[j].last && ranges[j].first <= ranges[i].last;
        const bool apart = plan.offsets[i] + ranges[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + ranges[j].bytes <= plan.offsets[i];
        ASSERT_TRUE(!together || apart) << "buffers " << i << " and " << j << " overlap";
      }
    }
  }
}

// Twice as many values alive together take about twice the time.
TEST(MemoryPlanner, ManyBuffersNeverOverlap) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << test::test_seed());
  std::mt19937 random(test::test_seed());
  std::vector<LiveRange> ranges(100'000);
  for (LiveRange& r : ranges) {
    r.bytes = 1 + random() % 5000;
    r.first = static_cast<int>(random() % 1000);
    r.last = r.first + static_cast<int>(random() % 1000);
  }
  const MemoryPlan plan = plan_memory(ranges);
  EXPECT_LE(plan.arena_bytes, 2 * peak_live_bytes(ranges));
  for (const int step : {0, 1, 500, 999, 1500, 1998}) {
    std::map<std::size_t, std::size_t> alive;  // offset -> bytes
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].first > step || ranges[i].last < step) continue;
      ASSERT_EQ(plan.offsets[i] % kArenaAlignment, 0U);
      ASSERT_LE(plan.offsets[i] + ranges[i].bytes, plan.arena_bytes);
      ASSERT_TRUE(alive.emplace(plan.offsets[i], ranges[i].bytes).second);
    }
    std::size_t end = 0;
    for (const auto& [offset, bytes] : alive) {
      ASSERT_GE(offset, end);
      end = offset + bytes;
    }
  }
}

TEST(MemoryPlanner, RefusesAbsurdSizes) {
  const std::vector<LiveRange> ranges = {{~std::size_t{0} / 2, 0, 0}};
  EXPECT_THROW(plan_memory(ranges), Error);
}

}  // namespace
}  // namespace pipit::internal
