// Packs buffers with known live ranges into one arena.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipit::internal {

/// A buffer that must exist from step `first` to step `last`, both inclusive.
struct LiveRange {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< one per range, multiples of kArenaAlignment
  std::size_t arena_bytes = 0;
};

inline constexpr std::size_t kArenaAlignment = 64;

/// Greedy by size (Pisarchyk & Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020):
/// the largest buffer first, each at the lowest offset of the tightest gap that is free over its whole range.
/// Beyond 20,000 buffers, where comparing all with all takes seconds, in the order of their steps instead, each into
/// the smallest block that is free. Buffers whose ranges share a step never overlap. Sizes are rounded up to
/// kArenaAlignment. Deterministic. Throws Error when the arena would overflow.
MemoryPlan plan_memory(std::span<const LiveRange> ranges);

/// The largest sum of (aligned) bytes alive at one step: no plan can use less.
std::size_t peak_live_bytes(std::span<const LiveRange> ranges);

}  // namespace pipit::internal
