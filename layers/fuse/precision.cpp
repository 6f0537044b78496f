#include "layers/cast.h"
#include "layers/fuse/passes.h"
#include "layers/fuse/rewriter.h"

namespace pipit {

// Shape inference knows f32 only: half is how values are stored, not what they mean. The pass therefore builds
// the graph in f32 and changes the element types of the finished values.
Rewritten assign_precision(const Graph& graph, Precision precision) {
  Rewriter rewriter(graph);
  GraphBuilder& builder = rewriter.builder();
  std::vector<ValueId> halves;
  int changes = 0;
  const auto convert = [&](ValueId id, const std::string& name, DType to) {
    const ValueId result = builder.add1(name, std::make_shared<Cast>(CastAttributes{to}), {id});
    builder.set_layout(result, builder.value(id).desc.layout);
    ++changes;
    return result;
  };
  const bool half = precision == Precision::fp16;
  if (half) {
    for (const ValueId id : graph.inputs()) {
      if (graph.value(id).desc.dtype != DType::f32) continue;
      const ValueId result = convert(rewriter.map(id), graph.value(id).name + ".f16", DType::f16);
      builder.set_dtype(result, DType::f32);
      halves.push_back(result);
      rewriter.forward(id, result);
    }
  }
  for (const Node& node : graph.nodes()) {
    rewriter.copy(node);
    for (const ValueId old : node.outputs) {
      const ValueId id = rewriter.map(old);
      builder.set_layout(id, graph.value(old).desc.layout);
      if (half && builder.value(id).desc.dtype == DType::f32) halves.push_back(id);
    }
  }
  if (half) {
    for (const ValueId old : graph.outputs()) {
      const ValueId id = rewriter.map(old);
      if (graph.value(old).is_constant() || builder.value(id).desc.dtype != DType::f32) continue;
      const std::string name = graph.value(old).name;
      builder.rename(id, name + ".f16");
      rewriter.forward(old, convert(id, name, DType::f32));
    }
    for (const ValueId id : halves) builder.set_dtype(id, DType::f16);
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
