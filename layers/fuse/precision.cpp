#include <algorithm>
#include <iterator>

#include "layers/cast.h"
#include "layers/conv.h"
#include "layers/fuse/passes.h"
#include "layers/fuse/rewriter.h"
#include "layers/gemm.h"

namespace pipit {

namespace {

bool is_constant(const Graph& graph, const Node& node, std::size_t input) {
  return graph.value(node.inputs[input]).is_constant();
}

bool absent_or_constant(const Graph& graph, const Node& node, std::size_t input) {
  return input >= node.inputs.size() || node.inputs[input] == kNoValue || is_constant(graph, node, input);
}

// A convolution that converts an f32 image while it stages it: what the GPU's "stem" takes, or failing that
// "implicit_gemm" (layers/cuda). Sizes are held well below the limits of the latter.
bool converts_image(const Graph& graph, const Node& node) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 26;
  constexpr std::int64_t kMaxWindow = 256;
  const auto* conv = layer_if<Conv>(node);
  if (conv == nullptr || !is_constant(graph, node, 1) || !absent_or_constant(graph, node, 2)) return false;
  const Window& w = conv->attributes().window;
  const TensorDesc& x = graph.value(node.inputs[0]).desc;
  const TensorDesc& y = graph.value(node.outputs[0]).desc;
  if (w.rank != 2 || conv->attributes().groups != 1 || x.shape[1] > 4) return false;
  if (x.elements() > kMaxElements || y.elements() > kMaxElements * 4) return false;
  if (x.elements() == 0 || y.elements() == 0 || y.layout != Layout::channels_last) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    if (w.span(static_cast<int>(i)) > kMaxWindow || w.pad_begin[i] > kMaxWindow || w.pad_end[i] > kMaxWindow)
      return false;
  }
  return true;
}

// A graph input that only such convolutions read, and only as their image.
bool read_as_image(const Graph& graph, ValueId id) {
  const auto& outputs = graph.outputs();
  if (std::find(outputs.begin(), outputs.end(), id) != outputs.end()) return false;
  int readers = 0;
  for (const Node& node : graph.nodes()) {
    const auto uses = std::count(node.inputs.begin(), node.inputs.end(), id);
    if (uses == 0) continue;
    if (uses > 1 || node.inputs[0] != id || !converts_image(graph, node)) return false;
    ++readers;
  }
  return readers > 0;
}

// The result of a Gemm that nothing but the graph's output reads.
bool written_wide(const Rewriter& rewriter, ValueId id) {
  const Graph& graph = rewriter.source();
  if (rewriter.producer(id) < 0 || rewriter.uses(id) != 1) return false;
  const Node& node = graph.nodes()[static_cast<std::size_t>(rewriter.producer(id))];
  return layer_if<Gemm>(node) != nullptr && !is_constant(graph, node, 0) && is_constant(graph, node, 1) &&
         absent_or_constant(graph, node, 2) && graph.value(id).desc.elements() > 0;
}

}  // namespace

// Shape inference knows f32 only: half is how values are stored, not what they mean. The pass therefore builds
// the graph in f32 and changes the element types of the finished values.
Rewritten assign_precision(const Graph& graph, Precision precision, DeviceKind device) {
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
  const bool gpu = device == DeviceKind::cuda;
  std::vector<ValueId> wide;  // of the source: values that stay f32
  if (half && gpu) {
    const auto& outputs = graph.outputs();
    std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(wide),
                 [&](ValueId id) { return written_wide(rewriter, id); });
  }
  const auto stays_wide = [&](ValueId id) { return std::find(wide.begin(), wide.end(), id) != wide.end(); };
  if (half) {
    for (const ValueId id : graph.inputs()) {
      if (graph.value(id).desc.dtype != DType::f32 || (gpu && read_as_image(graph, id))) continue;
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
      if (half && builder.value(id).desc.dtype == DType::f32 && !stays_wide(old)) halves.push_back(id);
    }
  }
  if (half) {
    for (const ValueId old : graph.outputs()) {
      const ValueId id = rewriter.map(old);
      if (stays_wide(old) || graph.value(old).is_constant() || builder.value(id).desc.dtype != DType::f32)
        continue;
      const std::string name = graph.value(old).name;
      builder.rename(id, name + ".f16");
      rewriter.forward(old, convert(id, name, DType::f32));
    }
    for (const ValueId id : halves) builder.set_dtype(id, DType::f16);
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
