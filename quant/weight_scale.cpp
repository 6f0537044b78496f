#include "quant/weight_scale.h"

#include <algorithm>
#include <cmath>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"

namespace pipit::internal {

namespace {

// Which dimension of the weights counts output channels; -1 where the layer does not multiply by weights.
int output_axis(const Node& node, const Shape& weights) {
  if (dynamic_cast<const Conv*>(node.layer.get()) != nullptr) return 0;
  if (const auto* gemm = dynamic_cast<const Gemm*>(node.layer.get()))
    return gemm->attributes().transpose_b ? 0 : 1;
  if (dynamic_cast<const MatMul*>(node.layer.get()) != nullptr && weights.rank() == 2) return 1;
  return -1;
}

}  // namespace

std::vector<WeightScales> weight_scales(const Graph& graph, bool per_channel) {
  std::vector<WeightScales> all;
  for (const Node& node : graph.nodes()) {
    if (node.inputs.size() < 2 || node.inputs[1] == kNoValue) continue;
    const Value& value = graph.value(node.inputs[1]);
    if (!value.is_constant() || value.desc.dtype != DType::f32) continue;
    const int axis = output_axis(node, value.desc.shape);
    if (axis < 0) continue;
    if (!value.constant) fail("node '{}': its weights '{}' were released", node.name, value.name);
    // Weights are kept in row-major order, whatever the activations are.
    const std::span<const float> weights = value.constant->values<float>();
    const std::int64_t channels = per_channel ? value.desc.shape[axis] : 1;
    std::int64_t inner = 1;  // neighbours in memory that belong to one channel
    for (int d = axis + 1; d < value.desc.shape.rank(); ++d) inner *= value.desc.shape[d];
    std::vector<float> largest(static_cast<std::size_t>(channels), 0.0F);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float magnitude = std::abs(weights[i]);
      if (!std::isfinite(magnitude)) fail("node '{}': weight {} is {}", node.name, i, weights[i]);
      const std::int64_t channel = per_channel ? static_cast<std::int64_t>(i) / inner % channels : 0;
      float& most = largest[static_cast<std::size_t>(channel)];
      most = std::max(most, magnitude);
    }
    WeightScales scales{node.name, node.inputs[0], {}};
    for (const float most : largest) {
      const float scale = most / 127.0F;
      scales.scales.push_back(scale > 0 ? scale : 1.0F);
    }
    all.push_back(std::move(scales));
  }
  return all;
}

}  // namespace pipit::internal
