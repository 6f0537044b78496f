// The weights of a float graph's convolutions and fully connected layers, as quantization and pruning take them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Whether the node is a Conv, a Gemm (A not transposed, C absent or one bias per column) or a MatMul by one matrix,
/// whose weights and bias are f32 constants and whose input 0 is computed.
bool has_constant_weights(const Graph& graph, const Node& node);

/// Whether the node is a convolution that adds a constant, as large as its result. GPU kernels of weights in few bits
/// and of scales found at run time add computed values only.
bool adds_constant(const Graph& graph, const Node& node);

struct RealWeights {
  Shape shape;                           ///< [O, I, kernel...]; of a matrix product [O, K, 1, 1]
  std::shared_ptr<const Tensor> tensor;  ///< row-major elements of that shape, with a Gemm's alpha in them
  std::vector<float> bias;               ///< [O] with a Gemm's beta, or empty

  std::span<const float> values() const { return tensor->values<float>(); }
};

/// The weights of a node with constant weights. The tensor is the graph's own where it is in order as it is.
RealWeights real_weights(const Graph& graph, const Node& node);

}  // namespace pipit::internal
