#include <set>

#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

// The Quantize that alone reads what the node reshapes; null where there is none.
const Node* quantize_behind(const Rewriter& rewriter, const Node& node) {
  const int next = layer_if<Reshape>(node) != nullptr ? rewriter.only_consumer(node.outputs[0]) : -1;
  if (next < 0) return nullptr;
  const Node& reader = rewriter.source().nodes()[static_cast<std::size_t>(next)];
  return layer_if<Quantize>(reader) != nullptr ? &reader : nullptr;
}

}  // namespace

Rewritten raise_quantize(const Graph& graph) {
  Rewriter rewriter(graph);
  std::set<const Node*> raised;
  for (const Node& node : graph.nodes()) {
    if (raised.contains(&node)) continue;
    const Node* quantize = quantize_behind(rewriter, node);
    if (quantize == nullptr) {
      rewriter.copy(node);
      continue;
    }
    const ValueId integers =
        rewriter.builder().add1(quantize->name, quantize->layer, {rewriter.map(node.inputs[0])});
    rewriter.emit(node.name, node.layer, {integers}, quantize->outputs);
    raised.insert(quantize);
  }
  return {rewriter.finish(), static_cast<int>(raised.size())};
}

}  // namespace pipit
