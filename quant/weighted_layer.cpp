#include "quant/weighted_layer.h"

#include <algorithm>

#include "layers/conv.h"
#include "layers/fuse/rewriter.h"
#include "layers/gemm.h"
#include "layers/matmul.h"

namespace pipit {

namespace {

// Sums of more products of u8 by s8 could leave int32 (layers/qconv.h).
constexpr std::int64_t kMostDepth = 60'000;

bool constant_f32(const Graph& graph, const Node& node, std::size_t input) {
  if (input >= node.inputs.size() || node.inputs[input] == kNoValue) return false;
  const Value& value = graph.value(node.inputs[input]);
  return value.constant != nullptr && value.desc.dtype == DType::f32;
}

// Whether a Gemm's C is a bias per column (or absent).
bool has_plain_bias(const Graph& graph, const Node& node, std::int64_t columns) {
  if (node.inputs.size() < 3 || node.inputs[2] == kNoValue) return true;
  const Shape& shape = graph.value(node.inputs[2]).desc.shape;
  return constant_f32(graph, node, 2) && shape.elements() == columns && shape[shape.rank() - 1] == columns;
}

}  // namespace

bool is_weighted_layer(const Graph& graph, const Node& node) {
  if (!constant_f32(graph, node, 1) || graph.value(node.inputs[0]).is_constant()) return false;
  if (graph.value(node.outputs[0]).desc.dtype != DType::f32) return false;
  const Shape& weights = graph.value(node.inputs[1]).desc.shape;
  if (weights.elements() == 0) return false;
  if (layer_if<Conv>(node) != nullptr) {
    const bool bias = node.inputs.size() < 3 || node.inputs[2] == kNoValue || constant_f32(graph, node, 2);
    return bias && weights.elements() / weights[0] < kMostDepth;
  }
  if (weights.rank() != 2) return false;
  if (const auto* gemm = layer_if<Gemm>(node)) {
    const GemmAttributes& a = gemm->attributes();
    return !a.transpose_a && weights[a.transpose_b ? 1 : 0] < kMostDepth &&
           has_plain_bias(graph, node, weights[a.transpose_b ? 0 : 1]);
  }
  return layer_if<MatMul>(node) != nullptr && graph.value(node.inputs[0]).desc.shape.rank() >= 2 &&
         weights[0] < kMostDepth;
}

std::vector<std::string> weighted_layers(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (is_weighted_layer(graph, node)) names.push_back(node.name);
  }
  return names;
}

LayerWeights layer_weights(const Graph& graph, const Node& node) {
  const Tensor& w = *graph.value(node.inputs[1]).constant;
  LayerWeights out{w.shape(), {w.values<float>().begin(), w.values<float>().end()}, {}};
  float beta = 1;
  if (layer_if<Conv>(node) == nullptr) {
    const auto* gemm = layer_if<Gemm>(node);
    const bool transposed = gemm != nullptr && gemm->attributes().transpose_b;
    const std::int64_t outputs = w.shape()[transposed ? 0 : 1];
    const std::int64_t depth = w.shape()[transposed ? 1 : 0];
    const float alpha = gemm != nullptr ? gemm->attributes().alpha : 1.0F;
    beta = gemm != nullptr ? gemm->attributes().beta : 1.0F;
    out.shape = Shape{outputs, depth, 1, 1};
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t k = 0; k < depth; ++k) {
        out.values[static_cast<std::size_t>(o * depth + k)] =
            alpha * w.values<float>()[static_cast<std::size_t>(transposed ? o * depth + k : k * outputs + o)];
      }
    }
  }
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
    for (const float b : graph.value(node.inputs[2]).constant->values<float>()) out.bias.push_back(beta * b);
  }
  return out;
}

}  // namespace pipit
