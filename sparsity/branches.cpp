#include "sparsity/branches.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/unary.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kResidual = 3;  // of Conv

ValueId residual_of(const Graph& graph, const Node& node) {
  const auto* conv = layer_if<Conv>(node);
  if (conv == nullptr || node.inputs.size() <= kResidual || !has_constant_weights(graph, node))
    return kNoValue;
  const ValueId id = node.inputs[kResidual];
  return id == kNoValue || graph.value(id).is_constant() ? kNoValue : id;
}

class BranchFinder {
 public:
  explicit BranchFinder(const Graph& graph)
      : graph_(graph), producer_(graph.values().size(), -1), readers_(graph.values().size()) {
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      for (const ValueId id : graph.nodes()[n].outputs) producer_[index(id)] = static_cast<int>(n);
      for (const ValueId id : graph.nodes()[n].inputs) {
        if (id != kNoValue) readers_[index(id)].push_back(static_cast<int>(n));
      }
    }
  }

  // All nodes from the last one back to its residual; empty when that is not all there is.
  std::set<int> nodes_of(int last) const {
    const ValueId residual = residual_of(graph_, node(last));
    if (residual == kNoValue || shown(node(last).outputs[0])) return {};
    std::set<int> nodes{last};
    std::vector<int> next{last};
    while (!next.empty()) {
      const Node& from = node(next.back());
      next.pop_back();
      for (const ValueId id : from.inputs) {
        if (id == kNoValue || id == residual || graph_.value(id).is_constant()) continue;
        const int producer = producer_[index(id)];
        if (producer < 0) return {};
        if (nodes.insert(producer).second) next.push_back(producer);
      }
    }
    for (const int n : nodes) {
      if (n != last && !stays_inside(node(n), nodes)) return {};
    }
    return nodes;
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[static_cast<std::size_t>(n)]; }
  bool shown(ValueId id) const {
    return std::find(graph_.outputs().begin(), graph_.outputs().end(), id) != graph_.outputs().end();
  }
  bool stays_inside(const Node& node, const std::set<int>& nodes) const {
    return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      const std::vector<int>& readers = readers_[index(id)];
      return !shown(id) &&
             std::all_of(readers.begin(), readers.end(), [&](int n) { return nodes.contains(n); });
    });
  }

  const Graph& graph_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> readers_;
};

// Whether the values of `id` are within the activation's bounds, whatever the input is.
bool within(const Graph& graph, int producer, const Clamp& activation) {
  if (activation.is_identity()) return true;
  if (producer < 0) return false;
  const auto* conv = layer_if<Conv>(graph.nodes()[static_cast<std::size_t>(producer)]);
  return conv != nullptr && conv->attributes().activation == activation;
}

LayerPtr function_of(const Clamp& activation) {
  UnaryAttributes attributes;
  if (activation != Clamp::relu())
    attributes = {UnaryKind::clip, static_cast<double>(activation.low), static_cast<double>(activation.high)};
  return std::make_shared<Unary>(attributes);
}

}  // namespace

std::vector<Branch> find_branches(const Graph& graph) {
  const BranchFinder finder(graph);
  std::vector<Branch> branches;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    std::set<int> nodes = finder.nodes_of(static_cast<int>(n));
    if (!nodes.empty()) branches.push_back({static_cast<int>(n), std::move(nodes)});
  }
  return branches;
}

Removals removals_of(const Graph& graph, const std::vector<Branch>& branches) {
  Removals removals;
  for (const Branch& branch : branches) {
    for (const int n : branch.nodes) {
      const Node& node = graph.nodes().at(static_cast<std::size_t>(n));
      if (!has_constant_weights(graph, node)) continue;
      const Shape shape = real_weights(graph, node).shape;
      Removal& removal = removals[node.name];
      removal.weights.assign(static_cast<std::size_t>(shape.elements()), 1);
      removal.outputs.assign(static_cast<std::size_t>(shape[0]), 1);
    }
  }
  return removals;
}

Graph remove_branches(const Graph& graph, const std::set<std::string>& last) {
  std::set<int> inside, ends;
  std::set<std::string> found;
  for (const Branch& branch : find_branches(graph)) {
    const std::string& name = graph.nodes()[static_cast<std::size_t>(branch.last)].name;
    if (!last.contains(name)) continue;
    found.insert(name);
    ends.insert(branch.last);
    for (const int n : branch.nodes) {
      if (n != branch.last) inside.insert(n);
    }
  }
  for (const std::string& name : last) {
    if (!found.contains(name)) fail("'{}' is not the last node of a residual branch", name);
  }
  Rewriter rewriter(graph);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (inside.contains(static_cast<int>(n))) continue;
    if (!ends.contains(static_cast<int>(n))) {
      rewriter.copy(node);
    } else {
      const ValueId residual = residual_of(graph, node);
      const Clamp activation = layer_if<Conv>(node)->attributes().activation;
      if (within(graph, rewriter.producer(residual), activation))
        rewriter.forward(node.outputs[0], rewriter.map(residual));
      else
        rewriter.emit(node.name, function_of(activation), {rewriter.map(residual)}, node.outputs);
    }
  }
  return rewriter.finish();
}

}  // namespace pipit::internal
