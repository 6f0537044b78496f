// The constants of a graph while kernels are made of them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/plan/kernel.h"

namespace pipit::internal {

/// Shares the tensors of a graph's constants and gives each up when no kernel is left that has yet to pack it, so that
/// a model is never held twice. May be used by several threads at once.
class PlanConstants {
 public:
  explicit PlanConstants(const Graph& graph);

  /// Null for what is no constant, or is given up.
  std::shared_ptr<const Tensor> tensor(ValueId id) const;
  /// The kernel, which reads the node's inputs, has packed those that it says.
  void drop_packed(const Node& node, const Kernel& kernel);
  /// What a kernel that computes the node as well needs of its constants it has packed.
  void drop_all(const Node& node);

 private:
  void drop(ValueId id);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Tensor>> tensors_;  // per value
  std::vector<int> uses_;  // node inputs and graph outputs that read it and have not packed it
};

}  // namespace pipit::internal
