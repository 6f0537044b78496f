// Layers that change nothing.
#include <algorithm>

#include "layers/ops/cast.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool changes_nothing(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kNoValue || node.outputs.size() != 1) return false;
  const TensorDesc& in = graph.value(node.inputs[0]).desc;
  const TensorDesc& out = graph.value(node.outputs[0]).desc;
  if (!(in == out)) return false;
  if (layer_if<Reshape>(node) || layer_if<Cast>(node) || layer_if<Expand>(node) || layer_if<Tile>(node))
    return true;
  if (layer_if<Concat>(node)) return node.inputs.size() == 1;
  if (const auto* split = layer_if<Split>(node)) return split->attributes().sizes.size() == 1;
  if (const auto* slice = layer_if<Slice>(node)) {
    const ResolvedSlice r = resolve_slice(slice->attributes(), in.shape);
    return std::all_of(r.step.begin(), r.step.begin() + in.shape.rank(),
                       [](std::int64_t s) { return s == 1; });
  }
  if (const auto* pad = layer_if<Pad>(node)) {
    const auto zero = [](std::int64_t n) { return n == 0; };
    const PadAttributes& a = pad->attributes();
    return std::all_of(a.begin.begin(), a.begin.end(), zero) && std::all_of(a.end.begin(), a.end.end(), zero);
  }
  if (const auto* transpose = layer_if<Transpose>(node)) {
    return std::is_sorted(transpose->attributes().permutation.begin(),
                          transpose->attributes().permutation.end());
  }
  return false;
}

Rewritten drop_unchanged(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    if (changes_nothing(graph, node)) {
      rewriter.forward(node.outputs[0], rewriter.map(node.inputs[0]));
      ++changes;
    } else {
      rewriter.copy(node);
    }
  }
  return {rewriter.finish(), changes};
}

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

// The value before the first Quantize of Quantize -> Dequantize -> `node` -> Quantize, all of one quantization.
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

Rewritten drop_repeated_rounding(const Graph& graph) {
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
  return {rewriter.finish(), changes};
}

}  // namespace

Rewritten drop_identities(const Graph& graph) {
  const Rewritten unchanged = drop_unchanged(graph);
  Rewritten rounded = drop_repeated_rounding(unchanged.graph);
  rounded.changes += unchanged.changes;
  return rounded;
}

}  // namespace pipit::internal
