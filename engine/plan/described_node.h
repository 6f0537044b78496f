// A node, and a kernel with all that is fused into it, as candidates are told about them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/plan_building.h"

namespace pipit::internal {

/// A NodeSpec and what it points to; keeps constants alive that are being packed. A step on the host of a GPU plan
/// computes in fp32, whatever its operands are stored as.
struct DescribedNode {
  std::vector<TensorDesc> widened;  ///< on the host: what `inputs` points to
  std::vector<const TensorDesc*> inputs;
  std::vector<TensorDesc> outputs;
  std::vector<std::shared_ptr<const Tensor>> constants;
  NodeSpec spec;

  DescribedNode(const PlanSubject& subject, const Node& node, bool on_host);
  DescribedNode(const DescribedNode&) = delete;
  DescribedNode& operator=(const DescribedNode&) = delete;
};

/// Where the inputs of a node after these come from (ChainLink::sources). Each of `chain` has one output. outside:
/// what they read beside (LinkSource::outside), to which the node's is added.
std::vector<LinkSource> link_sources(const Graph& graph, std::span<const Node* const> chain, const Node& node,
                                     std::vector<ValueId>& outside);

/// A draft's kernel: its node with NodeSpec::variant and NodeSpec::fusion. The draft must outlive it.
class DescribedKernel {
 public:
  DescribedKernel(const PlanSubject& subject, const StepDraft& draft);
  const NodeSpec& spec() const { return node_.spec; }

 private:
  DescribedNode node_;
  std::vector<std::unique_ptr<const DescribedNode>> links_;
  std::vector<ChainLink> chain_;
  std::vector<std::unique_ptr<const DescribedNode>> followers_;
  std::vector<const NodeSpec*> follower_specs_;
  std::unique_ptr<const DescribedKernel> producer_;
};

}  // namespace pipit::internal
