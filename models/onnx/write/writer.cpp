#include "models/onnx/write/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "models/onnx/read/reader.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit {

namespace {

constexpr std::int64_t kIrVersion = 8;
constexpr std::int64_t kOpset = 13;
// A protocol buffer counts its bytes in an int.
constexpr std::size_t kMostBytes = std::numeric_limits<int>::max();

void check_size(const Graph& graph) {
  std::size_t bytes = 0;
  for (const Value& value : graph.values()) bytes += value.constant ? value.desc.bytes() : 0;
  if (bytes > kMostBytes - (std::size_t{64} << 20)) {
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
      if (!onnx::write_int8_layer(writer, node) && !onnx::write_conv_layer(writer, node) &&
          !onnx::write_elementwise_layer(writer, node) && !onnx::write_movement_layer(writer, node))
        fail_unsupported("layer {} has no form here", node.layer->type());
    } catch (const UnsupportedError& e) {
      unsupported.push_back(fmt::format("node '{}': {}", node.name, e.what()));
      writer.give_up(node);
    }
  }
  if (!unsupported.empty()) fail_unsupported("cannot be written as ONNX: {}", fmt::join(unsupported, "\n  "));
}

// Dimension 0 may be any number: every layer hands it on, and none but Reshape (which writes it as "the input's")
// has it among its attributes.
bool keeps_batch(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const ValueId first = node.inputs.empty() ? kNoValue : node.inputs[0];
    for (const ValueId id : node.outputs) {
      const Shape& y = graph.value(id).desc.shape;
      if (first == kNoValue || graph.value(first).desc.shape.rank() == 0 || y.rank() == 0) return false;
      if (y[0] != graph.value(first).desc.shape[0]) return false;
    }
    if (const auto* transpose = dynamic_cast<const Transpose*>(node.layer.get());
        transpose != nullptr && transpose->attributes().permutation[0] != 0)
      return false;
    // A constant operand with a batch of its own would not broadcast.
    if (const auto* concat = dynamic_cast<const Concat*>(node.layer.get())) {
      if (concat->attributes().axis == 0) return false;
      for (const ValueId id : node.inputs) {
        if (graph.value(id).is_constant()) return false;
      }
    }
  }
  return true;
}

}  // namespace

std::string write_onnx(const Graph& graph, const OnnxWriteOptions& options) {
  check_size(graph);
  onnx_pb::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.add_opset_import()->set_version(kOpset);
  model.set_producer_name("pipit");
  model.set_producer_version(options.producer_version);
  model.mutable_graph()->set_name("pipit");
  onnx::GraphWriter writer(graph, *model.mutable_graph(), options.symbolic_batch && keeps_batch(graph));
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
  if (model.ByteSizeLong() > kMostBytes)
    fail("the model takes {} bytes; an ONNX file ends at 2 GB", model.ByteSizeLong());
  return model.SerializeAsString();
}

}  // namespace pipit
