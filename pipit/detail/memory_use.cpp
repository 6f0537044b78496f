#include "pipit/detail/memory_use.h"

#include <set>

#include "engine/graph/shared_buffer.h"

namespace pipit::internal::detail {

StepMemory step_memory(const Step& step) {
  StepMemory memory{step.kernel->packed_bytes(), 0, step.kernel->scratch_bytes()};
  for (const Placement& input : step.inputs) {
    if (input.constant) memory.constants += input.constant->desc().bytes();
  }
  return memory;
}

MemoryUse memory_use(const ExecutionPlan& plan) {
  MemoryUse use;
  for (const Value& value : plan.graph().values()) {
    if (value.is_constant()) use.weights += value.desc.bytes();
  }
  const SharedBuffer::CountedOnce once;
  std::set<const Tensor*> seen;
  std::size_t most_packed = 0;
  for (const Step& step : plan.steps()) {
    const StepMemory memory = step_memory(step);
    use.packed += memory.packed;
    for (const Placement& input : step.inputs) {
      if (input.constant && seen.insert(input.constant.get()).second)
        use.constants += input.constant->desc().bytes();
    }
    if (memory.packed > most_packed) {
      most_packed = memory.packed;
      use.largest_packed = step.index;
    }
    if (memory.workspace > use.workspace) {
      use.workspace = memory.workspace;
      use.largest_workspace = step.index;
    }
  }
  return use;
}

}  // namespace pipit::internal::detail
