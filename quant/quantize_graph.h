// From a float graph and a quantization plan to a graph that computes in INT8.
#pragma once

#include <map>
#include <set>
#include <string>

#include "engine/graph/graph.h"
#include "quant/int8_weights.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

struct QuantizeOptions {
  /// How activations are stored: i8 with zero point 0, or u8 with zero point 128, which hold the same values. The
  /// CPU's dot products multiply u8 by s8.
  DType activations = DType::u8;
  /// Layers by the names of their nodes whose weights are in [-8, 7]. They compute in INT8 as well.
  std::set<std::string> in_4_bits = {};
};

struct Quantized {
  Graph graph;
  int quantized = 0;  ///< nodes that compute in INT8
  int kept = 0;       ///< nodes that could but do not: the plan keeps them or has no scale for them
};

/// The nodes whose weights are worth storing in 4 bits: the largest ones, which leave a tenth of the weights of the
/// graph to the others. Rows of fewer than 32 weights (depthwise convolutions) are never among them: an error of one
/// weight has no others to make up for it. Small layers would save little.
std::set<std::string> worth_4_bits(const Graph& graph);

/// Rewrites a fused graph without layouts (optimize()'s, before assign_layouts). Convolutions and fully connected
/// layers with constant weights become QConv wherever the plan has the scale of what they read and does not keep them
/// in floating point; additions, products, activation functions, pools, Concat and what rearranges one tensor (Reshape,
/// Transpose, Slice, Split, DepthToSpace) follow when all that they read is INT8 already, so nothing goes through
/// floats between them; functions, products and rearrangements only where an INT8 layer reads what they write, for
/// otherwise nothing is gained by rounding their operands. Tensors that a Concat, a max pool or a rearrangement ties
/// together share the largest of their scales. What floating-point layers and outputs read is written in f32.
/// Weights: symmetric, as quantize_weights() has them (quant/int8_weights.h); bias: int32 in units of input scale times
/// weight scale; where it would not fit, the weight scale of that channel is enlarged.
/// Equalization and corrections of biases that the plan holds come first (quant/equalize.h, bias_correction.h).
/// `rounded`: layers by the names of their nodes whose weights and biases are integers already, for the scales of the
/// plan and with its equalization in them; they take no correction.
/// Throws Error when the plan has a scale for a tensor or keeps a node that the graph does not have, with the nearest
/// names, or has no scale at all.
Quantized quantize_graph(const Graph& graph, const QuantizationPlan& plan,
                         const QuantizeOptions& options = {},
                         std::map<std::string, QuantizedWeights> rounded = {});

}  // namespace pipit::internal
