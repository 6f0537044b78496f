#include "engine/plan/memory_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "engine/base/error.h"

namespace pipit {

namespace {

std::size_t aligned(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 4)
    fail("a buffer of {} bytes is too large to plan", bytes);
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool share_a_step(const LiveRange& a, const LiveRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan plan_memory(std::span<const LiveRange> ranges) {
  MemoryPlan plan;
  plan.offsets.assign(ranges.size(), 0);
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranges[a].bytes > ranges[b].bytes; });

  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t current : order) {
    const std::size_t need = aligned(ranges[current].bytes);
    if (need == 0) continue;
    constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::size_t best = kNone;
    std::size_t best_gap = kNone;
    std::size_t end = 0;  // end of the conflicting buffers seen so far
    for (const std::size_t other : placed) {
      if (!share_a_step(ranges[current], ranges[other])) continue;
      const std::size_t start = plan.offsets[other];
      if (start >= end && start - end >= need && start - end < best_gap) {
        best = end;
        best_gap = start - end;
      }
      end = std::max(end, start + aligned(ranges[other].bytes));
    }
    if (best == kNone) best = end;
    if (best > std::numeric_limits<std::size_t>::max() / 2)
      fail("the activations do not fit an address space");
    plan.offsets[current] = best;
    plan.arena_bytes = std::max(plan.arena_bytes, best + need);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), current,
                         [&](std::size_t a, std::size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        current);
  }
  return plan;
}

std::size_t peak_live_bytes(std::span<const LiveRange> ranges) {
  std::map<int, std::pair<std::size_t, std::size_t>>
      events;  // step -> bytes born at it, bytes dead before it
  for (const LiveRange& range : ranges) {
    events[range.first].first += aligned(range.bytes);
    events[range.last + 1].second += aligned(range.bytes);
  }
  std::size_t live = 0;
  std::size_t peak = 0;
  for (const auto& [step, change] : events) {
    live = live - change.second + change.first;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace pipit
