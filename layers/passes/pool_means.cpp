// ReduceMean over all positions of an image or a volume, as x.mean((2, 3)) is written.
#include <vector>

#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/image_values.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// What pools do at least as well: they add up row by row, and on a GPU with other channels position by position.
bool suits_pools(const TensorDesc& x) {
  constexpr std::int64_t kVector = 8, kMaxStridedPositions = 256, kMaxRowsAndColumns = 4096;
  const int rank = x.shape.rank();
  if (x.dtype != DType::f32 || rank < 4 || x.elements() == 0) return false;
  const std::int64_t columns = x.shape[rank - 1];
  const std::int64_t positions = x.elements() / x.shape[0] / x.shape[1];
  return positions / columns + columns <= kMaxRowsAndColumns &&
         (x.shape[1] % kVector == 0 || positions <= kMaxStridedPositions);
}

}  // namespace

Rewritten pool_means(const Graph& graph) {
  Rewriter rewriter(graph);
  const std::vector<bool> images = image_values(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const auto* reduce = layer_if<Reduce>(node);
    if (reduce == nullptr || !images[static_cast<std::size_t>(node.inputs[0])] ||
        !suits_pools(graph.value(node.inputs[0]).desc) ||
        !is_spatial_mean(*reduce, graph.value(node.inputs[0]).desc.shape)) {
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

}  // namespace pipit::internal
