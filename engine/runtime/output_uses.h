// Where the steps of a plan access its outputs, so that the outputs may lie outside the arena.
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
  std::size_t offset = 0;  ///< bytes from the beginning of the output
};

/// All operands that must move with each output of the plan, beginning with that of the step that writes it. Empty for
/// an output that must stay in place: one that is an input or a constant, shares its memory with another output, is
/// written by several steps or computed in place, and every output of a batch that is cut.
std::vector<std::vector<OutputUse>> find_output_uses(const ExecutionPlan& plan);

}  // namespace pipit::internal
