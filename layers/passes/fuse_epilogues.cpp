// What can run in the epilogue of the node before it: the residual add and clamps.
#include <optional>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/gemm.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Which operand of an add is a convolution that can take the other as its residual; -1 for none. Of two, the
// later one: the earlier has then been computed anyway.
int residual_operand(const Rewriter& rewriter, const Node& add, const std::vector<bool>& taken) {
  const Graph& graph = rewriter.source();
  const auto* binary = layer_if<Binary>(add);
  if (binary == nullptr || binary->attributes().kind != BinaryKind::add || add.inputs[0] == add.inputs[1])
    return -1;
  if (!(graph.value(add.inputs[0]).desc == graph.value(add.inputs[1]).desc)) return -1;
  int best = -1;
  int best_node = -1;
  for (int i = 0; i < 2; ++i) {
    const ValueId id = add.inputs[static_cast<std::size_t>(i)];
    const int producer = rewriter.producer(id);
    if (producer <= best_node || rewriter.only_consumer(id) < 0 || taken[static_cast<std::size_t>(producer)])
      continue;
    const Node& node = graph.nodes()[static_cast<std::size_t>(producer)];
    const auto* conv = layer_if<Conv>(node);
    const bool has_residual = node.inputs.size() > 3 && node.inputs[3] != kNoValue;
    if (conv == nullptr || has_residual || !conv->attributes().activation.is_identity()) continue;
    best = i;
    best_node = producer;
  }
  return best;
}

// conv(x) + r of equal shapes becomes one convolution with a residual input.
Rewritten fuse_residuals(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  // A fused convolution moves to the place of its add, where both operands exist.
  std::vector<bool> moved(graph.nodes().size(), false);
  std::vector<int> operand(graph.nodes().size(), -1);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    operand[n] = residual_operand(rewriter, graph.nodes()[n], moved);
    if (operand[n] < 0) continue;
    const ValueId conv_out = graph.nodes()[n].inputs[static_cast<std::size_t>(operand[n])];
    moved[static_cast<std::size_t>(rewriter.producer(conv_out))] = true;
  }
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (moved[n]) continue;
    if (operand[n] < 0) {
      rewriter.copy(node);
      continue;
    }
    const auto conv_operand = static_cast<std::size_t>(operand[n]);
    const Node& conv = graph.nodes()[static_cast<std::size_t>(rewriter.producer(node.inputs[conv_operand]))];
    ConvAttributes attributes = layer_as<Conv>(*conv.layer).attributes();
    attributes.activation = layer_as<Binary>(*node.layer).attributes().activation;
    const ValueId bias = conv.inputs.size() > 2 ? conv.inputs[2] : kNoValue;
    rewriter.emit(conv.name, std::make_shared<Conv>(attributes),
                  {rewriter.map(conv.inputs[0]), rewriter.map(conv.inputs[1]), rewriter.map(bias),
                   rewriter.map(node.inputs[1 - conv_operand])},
                  node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

// The layer with `clamp` applied last; null when it cannot.
LayerPtr with_activation(const Graph& graph, const Node& node, const Clamp& clamp) {
  if (graph.value(node.outputs[0]).desc.dtype != DType::f32) return nullptr;
  const auto extend = [&]<typename L>(const L* layer) -> LayerPtr {
    auto attributes = layer->attributes();
    if (!attributes.activation.is_identity()) return nullptr;
    attributes.activation = clamp;
    return std::make_shared<L>(attributes);
  };
  if (const auto* conv = layer_if<Conv>(node)) return extend(conv);
  if (const auto* conv = layer_if<ConvTranspose>(node)) return extend(conv);
  if (const auto* gemm = layer_if<Gemm>(node)) return extend(gemm);
  if (const auto* binary = layer_if<Binary>(node)) return extend(binary);
  return nullptr;
}

std::optional<Clamp> clamp_of(const Node& node) {
  const auto* unary = layer_if<Unary>(node);
  if (unary == nullptr) return std::nullopt;
  const UnaryAttributes& a = unary->attributes();
  if (a.kind == UnaryKind::relu) return Clamp::relu();
  if (a.kind == UnaryKind::clip && a.alpha <= a.beta) {
    return Clamp{static_cast<float>(a.alpha), static_cast<float>(a.beta)};
  }
  return std::nullopt;
}

// Relu or Clip after Conv, Gemm or a floating-point Binary moves into its epilogue.
Rewritten fuse_clamps(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  std::vector<bool> absorbed(graph.nodes().size(), false);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (absorbed[n]) continue;
    const int consumer = rewriter.only_consumer(node.outputs[0]);
    const auto c = static_cast<std::size_t>(consumer);
    const std::optional<Clamp> clamp = consumer < 0 ? std::nullopt : clamp_of(graph.nodes()[c]);
    const LayerPtr fused = clamp ? with_activation(graph, node, *clamp) : nullptr;
    if (!fused) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
    rewriter.emit(node.name, fused, std::move(inputs), graph.nodes()[c].outputs);
    absorbed[c] = true;
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace

Rewritten fuse_epilogues(const Graph& graph) {
  const Rewritten residuals = fuse_residuals(graph);
  Rewritten clamps = fuse_clamps(residuals.graph);
  clamps.changes += residuals.changes;
  return clamps;
}

}  // namespace pipit::internal
