// What every graph rewrite is made of: copy a graph node by node, replacing some of them.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Copies `source` into a new graph. Visit the source's nodes in order; copy() what stays, emit() what is
/// new, forward() values that another one replaces; then finish().
class Rewriter {
 public:
  explicit Rewriter(const Graph& source);

  const Graph& source() const { return source_; }
  /// How many readers a value has in the source.
  int uses(ValueId id) const { return uses_[static_cast<std::size_t>(id)]; }
  /// The node that computes a value in the source; -1 for inputs and constants.
  int producer(ValueId id) const { return producers_[static_cast<std::size_t>(id)]; }
  /// The only node that reads the value, if nothing else (node or graph output) does; else -1.
  int only_consumer(ValueId id) const;

  /// The new graph's value for one of the source (kNoValue for kNoValue). Throws Error when it was not made
  /// yet.
  ValueId map(ValueId id);
  void copy(const Node& node);
  /// Adds a node to the new graph; its inputs are values of the new graph. `replaced` are the source's values
  /// that its outputs stand for; they keep their names.
  std::vector<ValueId> emit(const std::string& name, LayerPtr layer, std::vector<ValueId> inputs,
                            const std::vector<ValueId>& replaced);
  ValueId constant(std::string name, Tensor tensor);
  /// Readers of `id` read `replacement` (of the new graph) instead.
  void forward(ValueId id, ValueId replacement);
  GraphBuilder& builder() { return builder_; }
  Graph finish();

 private:
  const Graph& source_;
  GraphBuilder builder_;
  std::vector<ValueId> mapped_;
  std::vector<int> uses_;
  std::vector<int> producers_;
  std::vector<int> consumers_;  // the last node that reads the value
};

/// A node's layer as L, or null.
template <typename L>
const L* layer_if(const Node& node) {
  return dynamic_cast<const L*>(node.layer.get());
}

}  // namespace pipit::internal
