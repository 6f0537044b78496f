#include "models/onnx/write/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "layers/ops/resize.h"
#include "models/onnx/read/reader.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal {

namespace {

// The IR version that came with an opset.
constexpr std::int64_t ir_version(int opset) {
  return opset < 19 ? 8 : opset < 21 ? 9 : 10;
}

// A protocol buffer counts its bytes in an int.
constexpr std::size_t kMaxBytes = std::numeric_limits<int>::max();

void check_size(const Graph& graph) {
  std::size_t bytes = 0;
  for (const Value& value : graph.values()) bytes += value.constant ? value.desc.bytes() : 0;
  if (bytes > kMaxBytes - (std::size_t{64} << 20)) {
    fail(
        "the model's {} bytes of weights do not fit an ONNX file, which ends at 2 GB; quantize more of its "
        "layers, or "
        "split it",
        bytes);
  }
}

void write_nodes(onnx::GraphWriter& writer) {
  std::vector<std::string> unsupported;
  for (const Node& node : writer.graph().nodes()) {
    try {
      if (!onnx::write_int8_layer(writer, node) && !onnx::write_stored_layer(writer, node) &&
          !onnx::write_conv_layer(writer, node) && !onnx::write_elementwise_layer(writer, node) &&
          !onnx::write_movement_layer(writer, node) && !onnx::write_selecting_layer(writer, node) &&
          !onnx::write_position_layer(writer, node))
        fail_unsupported("layer {} has no form here", node.layer->type());
    } catch (const UnsupportedError& e) {
      unsupported.push_back(fmt::format("node '{}': {}", node.name, e.what()));
      writer.give_up(node);
    }
  }
  if (!unsupported.empty()) fail_unsupported("cannot be written as ONNX: {}", fmt::join(unsupported, "\n  "));
}

// Dimension 0, which is 1, may be any number: every layer that computes samples keeps them apart, and none but Reshape
// and Expand (which are written so that they fit any) has their number among its attributes.
bool keeps_batch(const Graph& graph) {
  for (const ValueId id : graph.inputs()) {
    const Shape& shape = graph.value(id).desc.shape;
    if (shape.rank() == 0 || shape[0] != 1) return false;
  }
  std::vector<bool> by_sample(graph.values().size(), false);
  for (const ValueId id : graph.inputs()) by_sample[index(id)] = true;
  for (const Node& node : graph.nodes()) {
    std::vector<bool> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(id != kNoValue && by_sample[index(id)]);
    if (std::find(inputs.begin(), inputs.end(), true) == inputs.end()) continue;
    const std::vector<const TensorDesc*> descs = graph.input_descs(node);
    const auto* resize = dynamic_cast<const Resize*>(node.layer.get());
    if (!node.layer->is_batch_independent({descs, inputs})) return false;
    if (resize != nullptr && resize->attributes().sizes != decltype(ResizeAttributes::sizes){}) return false;
    for (const ValueId id : node.outputs) by_sample[index(id)] = true;
  }
  return std::all_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](ValueId id) { return by_sample[index(id)]; });
}

}  // namespace

std::string write_onnx(const Graph& graph, const OnnxWriteOptions& options) {
  check_size(graph);
  onnx_pb::ModelProto model;
  const int opset = onnx::file_opset(graph, options.form);
  model.set_ir_version(ir_version(opset));
  model.add_opset_import()->set_version(opset);
  model.set_producer_name("pipit");
  model.set_producer_version(options.producer_version);
  model.mutable_graph()->set_name("pipit");
  onnx::GraphWriter writer(graph, *model.mutable_graph(), opset, options.symbolic_batch && keeps_batch(graph),
                           options.form);
  write_nodes(writer);
  writer.finish_outputs();
  std::map<std::string, std::string> metadata = options.metadata;
  metadata.erase(std::string(kQuantizedRangeKey));
  if (writer.narrow_range()) metadata[std::string(kQuantizedRangeKey)] = kNarrowRange;
  for (const auto& [key, value] : metadata) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  if (model.ByteSizeLong() > kMaxBytes)
    fail("the model takes {} bytes; an ONNX file holds at most 2 GB", model.ByteSizeLong());
  return model.SerializeAsString();
}

}  // namespace pipit::internal
