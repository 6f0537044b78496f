// Residual branches: what is computed from a value to be added to it, and can be left out as a whole.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sparsity/removal.h"

namespace pipit::internal {

/// The nodes between a value and the convolution that adds it to its result: y = activation(conv(f(x)) + x).
struct Branch {
  int last = 0;         ///< the convolution
  std::set<int> nodes;  ///< with the last one
};

/// Branches whose values nothing else reads, in the order of the graph. Those that end in an output of the graph are
/// not among them, nor shortcuts that compute something themselves.
std::vector<Branch> find_branches(const Graph& graph);

/// Marks everything that layers of the branches with constant weights compute.
Removals removals_of(const Graph& graph, const std::vector<Branch>& branches);

/// `graph` without the branches that end in the named nodes: y = activation(x), and x itself where the activation is
/// that of the layer that computes it. (Whole blocks of residual networks can go since they are much like ensembles of
/// shallower ones: Veit et al., NeurIPS 2016.) Outputs are those of the graph in which the named nodes have zeros for
/// weights and biases. Throws Error when a name is not that of the last node of a branch.
Graph remove_branches(const Graph& graph, const std::set<std::string>& last);

}  // namespace pipit::internal
