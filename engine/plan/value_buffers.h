// Which values of a graph share memory, and from when to when each piece of it is needed.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "engine/plan/memory_planner.h"

namespace pipit::internal {

struct ValueBuffers {
  static constexpr int kNone = -1;

  std::vector<ValueId> root;        ///< per value: itself, or the value that it is a view of
  std::vector<int> buffer;          ///< per root: which of `ranges`; kNone for graph inputs and constants
  std::vector<std::size_t> offset;  ///< per root: bytes to it where it lies inside another (Step::parts)
  std::vector<LiveRange> ranges;
  std::vector<std::optional<std::size_t>> overwritten;  ///< per step: the input whose memory output 0 is

  int of(ValueId id) const { return buffer[index(root[index(id)])]; }
};

/// One buffer for each output of a step, or that of an input that dies with it and may be overwritten, or of the value
/// that it is a part of. `overwrites`: whether the step's kernel may write over an input where its layer does not allow
/// it (Candidate::overwrites); null: none does. Steps are in order, and each one's index is its position.
ValueBuffers find_buffers(const Graph& graph, std::span<const Step* const> steps,
                          const std::function<bool(const Step&, std::size_t input)>& overwrites = {});

}  // namespace pipit::internal
