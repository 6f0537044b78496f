#include "engine/plan/plan_constants.h"

namespace pipit::internal {

PlanConstants::PlanConstants(const Graph& graph) : uses_(graph.use_counts()) {
  for (const Value& value : graph.values()) tensors_.push_back(value.constant);
}

std::shared_ptr<const Tensor> PlanConstants::tensor(ValueId id) const {
  const std::lock_guard lock(mutex_);
  return tensors_[index(id)];
}

void PlanConstants::drop_packed(const Node& node, const Kernel& kernel) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!kernel.reads_constant(i)) drop(node.inputs[i]);
  }
}

void PlanConstants::drop_all(const Node& node) {
  for (const ValueId id : node.inputs) drop(id);
}

void PlanConstants::drop(ValueId id) {
  if (id == kNoValue) return;
  std::shared_ptr<const Tensor> last;  // freed outside of the lock
  const std::lock_guard lock(mutex_);
  if (--uses_[index(id)] == 0) last = std::move(tensors_[index(id)]);
}

}  // namespace pipit::internal
