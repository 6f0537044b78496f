// New weights and biases for layers of a graph.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// The weights of a layer as RealWeights has them (layers/passes/real_weights.h), to be changed.
struct NewWeights {
  Tensor weights;           ///< f32 [O, I, kernel...]; of a matrix product [O, K, 1, 1]
  std::vector<float> bias;  ///< [O] or empty
};

/// The node of that name. Throws Error when there is none, or it has no constant weights.
const Node& weighted_node(const Graph& graph, const std::string& name);

/// A copy of the weights of a node with constant weights.
NewWeights weights_of(const Graph& graph, const Node& node);

/// `graph` with these layers' weights and biases; a layer without a bias gets one. Throws Error when a name is not of a
/// node with constant weights, shapes do not fit, or a MatMul, which has no bias, should get one.
Graph replace_weights(const Graph& graph, std::map<std::string, NewWeights> layers);

}  // namespace pipit::internal
