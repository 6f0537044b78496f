#include <algorithm>

#include "layers/ops/cast.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

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

}  // namespace

Rewritten drop_identities(const Graph& graph) {
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

}  // namespace pipit
