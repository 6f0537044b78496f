#include "sparsity/channel_constants.h"

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool given(const Node& node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input] != kNoValue;
}

}  // namespace

bool ties_whole_groups(std::int64_t groups, std::int64_t outputs) {
  return groups > 1 && groups >= outputs / groups;
}

std::vector<ChannelConstant> channel_constants(const Graph& graph, const ChannelGroups& found,
                                               const Node& node) {
  std::vector<ChannelConstant> result;
  const auto shape = [&](ValueId id) -> const Shape& { return graph.value(id).desc.shape; };
  const ValueId x = node.inputs.empty() ? kNoValue : node.inputs[0];
  const ValueId y = node.outputs[0];
  const auto known = [&](ValueId id) { return id != kNoValue && found.values[index(id)].known(); };
  const auto weighted = [&](int out, int in) {
    if (known(y)) result.push_back({1, out, y, true, false});
    if (known(y) && given(node, 2)) result.push_back({2, shape(node.inputs[2]).rank() - 1, y, true, false});
    if (known(x) && in >= 0) result.push_back({1, in, x, false, true});
  };
  if (const auto* conv = layer_if<Conv>(node)) {
    if (!has_constant_weights(graph, node)) return {};
    weighted(0, ties_whole_groups(conv->attributes().groups, shape(node.inputs[1])[0]) ? -1 : 1);
  } else if (const auto* gemm = layer_if<Gemm>(node)) {
    if (!has_constant_weights(graph, node)) return {};
    const bool transposed = gemm->attributes().transpose_b;
    weighted(transposed ? 0 : 1, transposed ? 1 : 0);
  } else if (layer_if<MatMul>(node) != nullptr) {
    if (has_constant_weights(graph, node)) weighted(1, 0);
  } else if (layer_if<BatchNorm>(node) != nullptr || layer_if<InstanceNorm>(node) != nullptr) {
    // Scale and shift; mean and variance do not matter where these are zero.
    for (std::size_t i = 1; known(y) && i < node.inputs.size(); ++i)
      result.push_back({i, 0, y, i <= 2, false});
  } else if (const auto* binary = layer_if<Binary>(node); binary != nullptr && known(y)) {
    const BinaryKind kind = binary->attributes().kind;
    const bool sum = kind == BinaryKind::add || kind == BinaryKind::sub;
    for (std::size_t i = 0; i < 2; ++i) {
      const Value& value = graph.value(node.inputs[i]);
      const int axis = found.values[index(y)].axis - (shape(y).rank() - value.desc.shape.rank());
      if (value.constant && axis >= 0 && value.desc.shape[axis] > 1)
        result.push_back({i, axis, y, sum, false});
    }
  }
  return result;
}

}  // namespace pipit::internal
