// Scales of constant weights: symmetric int8 with the largest magnitude at 127.
#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// The weights of a node that INT8 kernels multiply by: operand 1 of a Conv, a Gemm or a MatMul, when constant.
struct WeightScales {
  std::string node;
  ValueId input = kNoValue;   ///< the node's operand 0
  std::vector<float> scales;  ///< one per output channel, or one in all; 1 where all weights are zero
};

/// Scales of every such node, in the order of the graph. Throws Error, naming the node, for weights that are not
/// finite or were released.
std::vector<WeightScales> weight_scales(const Graph& graph, bool per_channel);

}  // namespace pipit::internal
