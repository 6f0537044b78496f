#include "layers/ops/quantize.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

// The node that writes the value, where its layer is an L and one reader is all that the value has; else null.
template <typename L>
const Node* producer_as(const Rewriter& rewriter, ValueId id) {
  const int producer = rewriter.producer(id);
  if (producer < 0 || rewriter.only_consumer(id) < 0) return nullptr;
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(producer)];
  return layer_if<L>(node) != nullptr ? &node : nullptr;
}

bool clamps(const Node& node) {
  const auto* unary = layer_if<Unary>(node);
  if (unary == nullptr) return false;
  const UnaryAttributes& a = unary->attributes();
  return a.kind == UnaryKind::relu || (a.kind == UnaryKind::clip && a.alpha <= a.beta);
}

// The value in front of the first Quantize of Quantize -> Dequantize -> `node` -> Quantize, all of one quantization.
ValueId before_requantization(const Rewriter& rewriter, const Node& node) {
  const int next = rewriter.only_consumer(node.outputs[0]);
  const Node* dequantize = producer_as<Dequantize>(rewriter, node.inputs[0]);
  if (next < 0 || dequantize == nullptr) return kNoValue;
  const Node* first = producer_as<Quantize>(rewriter, dequantize->inputs[0]);
  const auto* second = layer_if<Quantize>(rewriter.source().nodes()[static_cast<std::size_t>(next)]);
  if (first == nullptr || second == nullptr) return kNoValue;
  const Quantization& q = layer_if<Quantize>(*first)->y();
  return q == second->y() && q == layer_if<Dequantize>(*dequantize)->x() ? first->inputs[0] : kNoValue;
}

}  // namespace

Rewritten drop_requantization(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const ValueId x = clamps(node) ? before_requantization(rewriter, node) : kNoValue;
    if (x == kNoValue) {
      rewriter.copy(node);
      continue;
    }
    rewriter.emit(node.name, node.layer, {rewriter.map(x)}, node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes, {}};
}

}  // namespace pipit
