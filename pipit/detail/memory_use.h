// What a plan holds of memory.
#pragma once

#include <cstddef>

#include "engine/plan/execution_plan.h"

namespace pipit::internal::detail {

/// Bytes that belong to a step, on its device.
struct StepMemory {
  std::size_t packed = 0;     ///< weights in the order in which its kernel reads them
  std::size_t constants = 0;  ///< weights and other constants that it reads as they are
  std::size_t workspace = 0;  ///< of the arena, while it runs; of a step on the host, of its session
};
StepMemory step_memory(const Step& step);

/// The same of all steps.
struct MemoryUse {
  std::size_t weights =
      0;  ///< constants of the graph that runs, as it stores them; most are freed once packed
  std::size_t packed = 0;     ///< by all kernels; what several of them share once
  std::size_t constants = 0;  ///< each once
  std::size_t workspace = 0;  ///< of the step that wants the most
  int largest_packed = -1;    ///< step with the most packed bytes; -1: none has any
  int largest_workspace = -1;
};
MemoryUse memory_use(const ExecutionPlan& plan);

}  // namespace pipit::internal::detail
