#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/passes/byte_image.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

// The image whose Quantize only this convolution reads, as its x; else kNoValue.
ValueId image_of(const Rewriter& rewriter, const Node& node) {
  constexpr std::int64_t kFewChannels = 4;
  const Graph& graph = rewriter.source();
  const auto* conv = layer_if<QConv>(node);
  if (conv == nullptr || rewriter.uses(node.inputs[0]) != 1) return kNoValue;
  const int producer = rewriter.producer(node.inputs[0]);
  if (producer < 0) return kNoValue;
  const Node& before = graph.nodes()[static_cast<std::size_t>(producer)];
  const auto* quantize = layer_if<Quantize>(before);
  if (quantize == nullptr || !(quantize->y() == conv->attributes().x)) return kNoValue;
  const ValueId image = before.inputs[0];
  if (!is_user_image(rewriter, image)) return kNoValue;
  const Shape& shape = graph.value(image).desc.shape;
  return shape.rank() == 4 && shape[1] <= kFewChannels ? image : kNoValue;
}

}  // namespace

Rewritten fuse_quantized_image(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const ValueId image = image_of(rewriter, node);
    if (image == kNoValue) {
      rewriter.copy(node);
    } else {
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
      inputs[0] = rewriter.map(image);
      rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
      ++changes;
    }
    for (const ValueId old : node.outputs)
      rewriter.builder().set_layout(rewriter.map(old), graph.value(old).desc.layout);
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
