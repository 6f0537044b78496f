// ReduceMean over all positions of an image, as x.mean((2, 3)) is written.
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

// Of three dimensions the last may as well be the channels of tokens.
bool averages_image(const Graph& graph, const Node& node) {
  const auto* mean = layer_if<Reduce>(node);
  if (mean == nullptr) return false;
  const TensorDesc& x = graph.value(node.inputs[0]).desc;
  return x.dtype == DType::f32 && x.shape.rank() >= 4 && is_spatial_mean(*mean, x.shape);
}

}  // namespace

Rewritten pool_means(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    if (!averages_image(graph, node)) {
      rewriter.copy(node);
      continue;
    }
    ++changes;
    const auto pool = std::make_shared<Pool>(PoolAttributes{.kind = PoolKind::average, .global = true});
    const ValueId x = rewriter.map(node.inputs[0]);
    const Value& mean = graph.value(node.outputs[0]);
    if (mean.desc.shape.rank() == graph.value(node.inputs[0]).desc.shape.rank()) {
      rewriter.emit(node.name, pool, {x}, node.outputs);
      continue;
    }
    const ValueId kept = rewriter.builder().add1(node.name, pool, {x}, mean.name + ".kept");
    rewriter.emit(node.name + "/squeeze", std::make_shared<Reshape>(ReshapeAttributes{mean.desc.shape}),
                  {kept}, node.outputs);
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
