#include "quant/weighted_layer.h"

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Sums of more products of u8 by s8 could leave int32 (layers/ops/qconv.h).
constexpr std::int64_t kMaxProducts = 60'000;

}  // namespace

bool is_weighted_layer(const Graph& graph, const Node& node) {
  if (!has_constant_weights(graph, node)) return false;
  if (graph.value(node.outputs[0]).desc.dtype != DType::f32) return false;
  const Shape& weights = graph.value(node.inputs[1]).desc.shape;
  if (layer_if<Conv>(node) != nullptr) return weights.elements() / weights[0] < kMaxProducts;
  const auto* gemm = layer_if<Gemm>(node);
  return weights[gemm != nullptr && gemm->attributes().transpose_b ? 1 : 0] < kMaxProducts &&
         graph.value(node.inputs[0]).desc.shape.rank() >= 2;
}

std::vector<std::string> weighted_layers(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (is_weighted_layer(graph, node)) names.push_back(node.name);
  }
  return names;
}

}  // namespace pipit::internal
