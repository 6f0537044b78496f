#include "sparsity/replace_weights.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

Tensor vector_tensor(const std::vector<float>& values) {
  Tensor tensor(TensorDesc{Shape{static_cast<std::int64_t>(values.size())}});
  std::copy(values.begin(), values.end(), tensor.values<float>().begin());
  return tensor;
}

// [O, K, 1, 1] as the matrix that a product reads: [O, K], or [K, O].
Tensor matrix(const Tensor& weights, bool transposed) {
  const std::int64_t outputs = weights.shape()[0];
  const std::int64_t depth = weights.shape()[1];
  Tensor made(TensorDesc{transposed ? Shape{outputs, depth} : Shape{depth, outputs}});
  const float* from = weights.values<float>().data();
  float* to = made.values<float>().data();
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t k = 0; k < depth; ++k) to[transposed ? o * depth + k : k * outputs + o] = *from++;
  }
  return made;
}

void check(const Graph& graph, const Node& node, const NewWeights& made) {
  const RealWeights old = real_weights(graph, node);
  const std::size_t outputs = made.bias.size();
  if (made.weights.shape() != old.shape || (outputs != 0 && outputs != index(static_cast<int>(old.shape[0]))))
    fail("'{}': weights {} and {} biases, expected weights {}", node.name, made.weights.shape().str(),
         outputs, old.shape.str());
  if (layer_if<MatMul>(node) != nullptr && outputs != 0) fail("'{}': a MatMul has no bias", node.name);
}

void emit(Rewriter& rewriter, const Node& node, NewWeights made) {
  const Graph& graph = rewriter.source();
  std::vector<ValueId> inputs;
  for (const ValueId id : node.inputs) inputs.push_back(id == node.inputs[1] ? kNoValue : rewriter.map(id));
  LayerPtr layer = node.layer;
  const std::string& name = graph.value(node.inputs[1]).name;
  if (const auto* gemm = layer_if<Gemm>(node)) {
    GemmAttributes attributes = gemm->attributes();
    attributes.alpha = attributes.beta = 1;  // they are in the weights and in the bias
    inputs[1] = rewriter.constant(name, matrix(made.weights, attributes.transpose_b));
    layer = std::make_shared<Gemm>(attributes);
  } else if (layer_if<MatMul>(node) != nullptr) {
    inputs[1] = rewriter.constant(name, matrix(made.weights, false));
  } else {
    inputs[1] = rewriter.constant(name, std::move(made.weights));
  }
  if (!made.bias.empty()) {
    if (inputs.size() < 3) inputs.push_back(kNoValue);
    const bool has_name = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    inputs[2] = rewriter.constant(has_name ? graph.value(node.inputs[2]).name : node.name + ".bias",
                                  vector_tensor(made.bias));
  }
  rewriter.emit(node.name, layer, std::move(inputs), node.outputs);
}

}  // namespace

const Node& weighted_node(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name != name) continue;
    if (has_constant_weights(graph, node)) return node;
    fail("'{}' is not a convolution or matrix product with constant weights", name);
  }
  fail("the graph has no layer '{}'", name);
}

NewWeights weights_of(const Graph& graph, const Node& node) {
  RealWeights real = real_weights(graph, node);
  Tensor weights(TensorDesc{real.shape});
  const std::span<const float> from = real.values();
  std::copy(from.begin(), from.end(), weights.values<float>().begin());
  return {std::move(weights), std::move(real.bias)};
}

Graph replace_weights(const Graph& graph, std::map<std::string, NewWeights> layers) {
  for (const auto& [name, made] : layers) check(graph, weighted_node(graph, name), made);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const auto found = layers.find(node.name);
    if (found == layers.end() || !has_constant_weights(graph, node)) {
      rewriter.copy(node);
    } else {
      emit(rewriter, node, std::move(found->second));
      layers.erase(found);
    }
  }
  return rewriter.finish();
}

}  // namespace pipit::internal
