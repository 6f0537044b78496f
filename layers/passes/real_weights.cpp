#include "layers/passes/real_weights.h"

#include <optional>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool given(const Node& node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input] != kNoValue;
}

bool constant_f32(const Graph& graph, const Node& node, std::size_t input) {
  if (!given(node, input)) return false;
  const Value& value = graph.value(node.inputs[input]);
  return value.constant != nullptr && value.desc.dtype == DType::f32;
}

// Whether a Gemm's C is a bias per column (or absent).
bool has_plain_bias(const Graph& graph, const Node& node, std::int64_t columns) {
  if (!given(node, 2)) return true;
  const Shape& shape = graph.value(node.inputs[2]).desc.shape;
  return constant_f32(graph, node, 2) && shape.rank() > 0 && shape.elements() == columns &&
         shape[shape.rank() - 1] == columns;
}

}  // namespace

bool has_constant_weights(const Graph& graph, const Node& node) {
  if (!constant_f32(graph, node, 1) || !given(node, 0) || graph.value(node.inputs[0]).is_constant())
    return false;
  const Shape& weights = graph.value(node.inputs[1]).desc.shape;
  if (weights.elements() == 0) return false;
  if (layer_if<Conv>(node) != nullptr) return !given(node, 2) || constant_f32(graph, node, 2);
  if (weights.rank() != 2) return false;
  if (const auto* gemm = layer_if<Gemm>(node)) {
    const GemmAttributes& a = gemm->attributes();
    return !a.transpose_a && has_plain_bias(graph, node, weights[a.transpose_b ? 0 : 1]);
  }
  return layer_if<MatMul>(node) != nullptr;
}

bool adds_constant(const Graph& graph, const Node& node) {
  const std::optional<std::size_t> residual = node.layer->traits().residual;
  return residual && given(node, *residual) && graph.value(node.inputs[*residual]).is_constant();
}

RealWeights real_weights(const Graph& graph, const Node& node) {
  const std::shared_ptr<const Tensor>& tensor = graph.value(node.inputs[1]).constant;
  const Tensor& w = *tensor;
  RealWeights out{w.shape(), tensor, {}};
  float beta = 1;
  if (layer_if<Conv>(node) == nullptr) {
    const auto* gemm = layer_if<Gemm>(node);
    const bool transposed = gemm != nullptr && gemm->attributes().transpose_b;
    const std::int64_t outputs = w.shape()[transposed ? 0 : 1];
    const std::int64_t depth = w.shape()[transposed ? 1 : 0];
    const float alpha = gemm != nullptr ? gemm->attributes().alpha : 1.0F;
    beta = gemm != nullptr ? gemm->attributes().beta : 1.0F;
    out.shape = Shape{outputs, depth, 1, 1};
    if (!transposed || alpha != 1) {
      Tensor made(TensorDesc{Shape{outputs, depth}});
      float* to = made.values<float>().data();
      const float* from = w.values<float>().data();
      for (std::int64_t o = 0; o < outputs; ++o) {
        for (std::int64_t k = 0; k < depth; ++k)
          *to++ = alpha * from[transposed ? o * depth + k : k * outputs + o];
      }
      out.tensor = std::make_shared<const Tensor>(std::move(made));
    }
  }
  if (given(node, 2)) {
    for (const float b : graph.value(node.inputs[2]).constant->values<float>()) out.bias.push_back(beta * b);
  }
  return out;
}

}  // namespace pipit::internal
