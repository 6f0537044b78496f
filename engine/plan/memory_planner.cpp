#include "engine/plan/memory_planner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

// Half a second of comparisons.
constexpr std::size_t kMaxBySize = 20'000;

std::size_t aligned(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 4)
    fail("a buffer of {} bytes is too large to plan", bytes);
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool share_a_step(const LiveRange& a, const LiveRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

void check_end(std::size_t offset) {
  if (offset > std::numeric_limits<std::size_t>::max() / 2)
    fail("the activations do not fit an address space");
}

// Every buffer is compared with all that are larger.
MemoryPlan plan_by_size(std::span<const LiveRange> ranges) {
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
    check_end(best);
    plan.offsets[current] = best;
    plan.arena_bytes = std::max(plan.arena_bytes, best + need);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), current,
                         [&](std::size_t a, std::size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        current);
  }
  return plan;
}

// Memory that is free below the end of the arena.
class FreeBlocks {
 public:
  // The lowest of the smallest blocks that hold `bytes`, or the end of the arena.
  std::size_t take(std::size_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) {
      // A block at the end grows.
      const auto last = by_offset_.empty() ? by_offset_.end() : std::prev(by_offset_.end());
      std::size_t offset = end_;
      if (last != by_offset_.end() && last->first + last->second == end_) {
        offset = last->first;
        erase(last);
      }
      end_ = offset + bytes;
      return offset;
    }
    const auto [size, offset] = *fit;
    erase(by_offset_.find(offset));
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }

  void give_back(std::size_t offset, std::size_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        erase(before);
      }
    }
    insert(offset, bytes);
  }

  std::size_t end() const { return end_; }

 private:
  using Blocks = std::map<std::size_t, std::size_t>;
  void insert(std::size_t offset, std::size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  Blocks::iterator erase(Blocks::iterator block) {
    by_size_.erase({block->second, block->first});
    return by_offset_.erase(block);
  }

  Blocks by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
  std::size_t end_ = 0;
};

// Step by step, as an allocator would: in n log n, and with larger arenas.
MemoryPlan plan_by_step(std::span<const LiveRange> ranges) {
  MemoryPlan plan;
  plan.offsets.assign(ranges.size(), 0);
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranges[a].first < ranges[b].first; });
  FreeBlocks free;
  std::set<std::pair<int, std::size_t>> alive;  // by last step
  for (const std::size_t current : order) {
    const std::size_t need = aligned(ranges[current].bytes);
    if (need == 0) continue;
    while (!alive.empty() && alive.begin()->first < ranges[current].first) {
      const std::size_t gone = alive.begin()->second;
      free.give_back(plan.offsets[gone], aligned(ranges[gone].bytes));
      alive.erase(alive.begin());
    }
    plan.offsets[current] = free.take(need);
    check_end(free.end());
    alive.emplace(ranges[current].last, current);
  }
  plan.arena_bytes = free.end();
  return plan;
}

}  // namespace

MemoryPlan plan_memory(std::span<const LiveRange> ranges) {
  return ranges.size() <= kMaxBySize ? plan_by_size(ranges) : plan_by_step(ranges);
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

}  // namespace pipit::internal
