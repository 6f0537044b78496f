// Where the steps of a plan touch the memory of its outputs, so that this may lie outside of the arena.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/plan/execution_plan.h"

namespace pipit::internal {

/// An operand of a step that lies in an output.
struct OutputUse {
  std::size_t step = 0;
  std::size_t operand = 0;
  bool written = false;    ///< an output of the step; else one of its inputs
  std::size_t offset = 0;  ///< bytes from where the output begins
};

/// All operands that have to move with each output of the plan, the step that writes it first. None for an output that
/// has to stay where it is: one that is an input or a constant, shares its memory with another one, is put together of
/// what several steps write or is computed in place, and any of a batch that is cut.
std::vector<std::vector<OutputUse>> find_output_uses(const ExecutionPlan& plan);

}  // namespace pipit::internal
