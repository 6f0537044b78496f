// Layers that multiply by constant weights, and those weights as INT8 kernels take them.
#pragma once

#include <string>
#include <vector>

#include "engine/graph.h"

namespace pipit {

/// Whether a node can become a QConv: a Conv, Gemm or MatMul in f32 with constant weights and bias whose sums fit int32.
bool is_weighted_layer(const Graph& graph, const Node& node);

/// The names of those nodes, in the order of the graph.
std::vector<std::string> weighted_layers(const Graph& graph);

/// Weights as [O, I, kernel...] (of Gemm and MatMul [O, K, 1, 1], alpha multiplied in) and the bias (beta multiplied
/// in): O values, or none.
struct LayerWeights {
  Shape shape;
  std::vector<float> values;
  std::vector<float> bias;
};
LayerWeights layer_weights(const Graph& graph, const Node& node);

}  // namespace pipit
