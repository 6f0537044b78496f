// What lies where in a plan's arena, step by step.
#pragma once

#include <span>
#include <vector>

#include "engine/plan/execution_plan.h"

namespace pipit::internal {

/// A piece of the arena between the step that writes it and the last one that reads it, both inclusive.
struct ArenaBlock {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
  int step = 0;          ///< whose output or scratch it is
  bool scratch = false;  ///< needed while the step runs only
};

/// In the order of their first steps. Blocks that overlap in both memory and time are an output and the input that it
/// overwrites, or a value and the larger one that it was written into. Where the batch is cut, the steps are those of
/// one micro-batch, and what the whole batch's outputs need is alive in all of them.
std::vector<ArenaBlock> arena_blocks(const ExecutionPlan& plan);

/// Per step of the plan: the bytes that hold something, each counted once.
std::vector<std::size_t> live_bytes(const ExecutionPlan& plan, std::span<const ArenaBlock> blocks);

}  // namespace pipit::internal
