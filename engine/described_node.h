// A node as candidates and kernels are told about it.
#pragma once

#include <memory>
#include <vector>

#include "engine/graph.h"
#include "engine/kernel.h"
#include "engine/plan.h"

namespace pipit {

/// A NodeSpec and what it points to; keeps constants alive that are being packed. A step on the host of a GPU plan
/// computes in fp32, whatever its operands are stored as.
struct DescribedNode {
  std::vector<TensorDesc> widened;  ///< on the host: what `inputs` points to
  std::vector<const TensorDesc*> inputs;
  std::vector<TensorDesc> outputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  NodeSpec spec;

  DescribedNode(const Graph& graph, const Node& node, const PlanOptions& options, bool on_host);
  DescribedNode(const DescribedNode&) = delete;
  DescribedNode& operator=(const DescribedNode&) = delete;
};

}  // namespace pipit
