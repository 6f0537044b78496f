// Which nodes a model needs, and an order that runs them.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "models/onnx/read/functions.h"

namespace pipit::internal::onnx {

/// How many of a node's first inputs its results need. Running statistics that a BatchNormalization in training mode
/// would only pass on are none of them: exporters compute these from whole weights.
int inputs_needed(const FlatNode& node);

/// Indices of the nodes that `outputs` depend on, every node after the producers of its inputs; file order
/// where that already holds (ONNX asks for it, not every exporter obeys). `available` are the names of graph
/// inputs and initializers. Throws Error naming node and value on a value with two producers or none, and on
/// a cycle.
std::vector<std::size_t> execution_order(const std::vector<FlatNode>& nodes,
                                         const std::unordered_set<std::string>& available,
                                         const std::vector<std::string>& outputs);

}  // namespace pipit::internal::onnx
