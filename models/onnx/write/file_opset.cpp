// Which opset a file needs.
#include <algorithm>

#include "layers/ops/binary.h"
#include "layers/ops/grid_sample.h"
#include "layers/ops/indexing.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

// What most runtimes read, and old ones too.
constexpr int kUsual = 13;

int first_opset(const PoolAttributes& pool) {
  if (pool.global || pool.kind == PoolKind::max) return kUsual;
  const Window& window = pool.window;
  const bool dilated = std::ranges::any_of(window.dilation, [](std::int64_t d) { return d != 1; });
  if (pool.kind == PoolKind::average) return dilated ? 19 : kUsual;
  return dilated || window.ceil_mode ? 18 : kUsual;
}

int first_opset(const ResizeAttributes& resize) {
  if (resize.coordinates == ResizeCoordinates::half_pixel_symmetric) return 19;
  return resize.filter.antialias ? 18 : kUsual;
}

int first_opset(const Graph& graph, const Node& node) {
  if (const auto* pool = layer_if<Pool>(node)) return first_opset(pool->attributes());
  if (const auto* resize = layer_if<Resize>(node)) return first_opset(resize->attributes());
  if (layer_if<GridSample>(node) != nullptr)
    return graph.value(node.inputs[0]).desc.shape.rank() == 4 ? 16 : 20;
  if (const auto* pad = layer_if<Pad>(node)) return pad->attributes().mode == PadMode::wrap ? 19 : kUsual;
  if (const auto* norm = layer_if<LayerNorm>(node)) return norm->attributes().outputs == 1 ? kUsual : 17;
  // Types that came later.
  const auto is = [](DType type, std::initializer_list<DType> types) {
    return std::ranges::find(types, type) != types.end();
  };
  if (layer_if<WConv>(node) != nullptr || layer_if<WLinear>(node) != nullptr) return 21;  // blocks, INT4
  const TensorDesc& y = graph.value(node.outputs[0]).desc;
  if (layer_if<Reduce>(node) != nullptr && y.dtype == DType::boolean) return 20;
  if (const auto* reshape = layer_if<Reshape>(node))
    return reshape->attributes().shape.elements() == 0 ? 14 : kUsual;
  if (layer_if<Binary>(node) != nullptr && is(y.dtype, {DType::i8, DType::u8})) return 14;
  if (const auto* unary = layer_if<Unary>(node); unary != nullptr &&
                                                 unary->attributes().kind == UnaryKind::relu &&
                                                 !is(y.dtype, {DType::f32, DType::f64}))
    return 14;
  if (const auto* scatter = layer_if<ScatterIndexed>(node)) {
    const ScatterReduction reduction = scatter->attributes().reduction;
    if (reduction == ScatterReduction::none) return kUsual;
    return reduction == ScatterReduction::add || reduction == ScatterReduction::mul ? 16 : 18;
  }
  return kUsual;
}

}  // namespace

int file_opset(const Graph& graph, const QdqForm& form) {
  int opset = form.int4_weights ? 21 : kUsual;
  for (const Node& node : graph.nodes()) opset = std::max(opset, first_opset(graph, node));
  return opset;
}

}  // namespace pipit::internal::onnx
