// Layers that can compute in INT8 because they multiply by constant weights.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Whether a node can become a QConv: constant weights (has_constant_weights), an f32 result, and sums that fit int32.
bool is_weighted_layer(const Graph& graph, const Node& node);

/// The names of those nodes, in the order of the graph.
std::vector<std::string> weighted_layers(const Graph& graph);

}  // namespace pipit::internal
