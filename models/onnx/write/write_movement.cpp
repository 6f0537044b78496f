// Layers that move elements as ONNX nodes. INT8 values keep their scale.
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::onnx {

namespace {

// Dimensions that stay are written as 0, "as in the input", so that the model fits other batches.
void write_reshape(GraphWriter& writer, const Node& node, const ReshapeAttributes& attributes) {
  const Shape& from = writer.desc(node.inputs[0]).shape;
  const auto dims = attributes.shape.dims();
  std::vector<std::int64_t> shape(dims.begin(), dims.end());
  if (from.rank() > 0 && !shape.empty() && shape[0] == from[0]) shape[0] = 0;
  const std::string x = writer.operand(node.inputs[0]);
  const std::string to = writer.integers(node.name + "/shape", shape);
  writer.add("Reshape", node.name, {x, to});
}

void write_concat(GraphWriter& writer, const Node& node, const ConcatAttributes& attributes) {
  GraphWriter::Names inputs;
  for (const ValueId id : node.inputs) {
    if (!(writer.is_integer(id) == writer.is_integer(node.inputs[0])) ||
        (writer.is_integer(id) && !(writer.quantization(id) == writer.quantization(node.inputs[0]))))
      fail_unsupported("INT8 operands of different scales");
    inputs.push_back(writer.operand(id));
  }
  set(writer.add("Concat", node.name, inputs), "axis", attributes.axis);
}

void write_slice(GraphWriter& writer, const Node& node, const SliceAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  GraphWriter::Names inputs{x};
  inputs.push_back(writer.integers(node.name + "/starts", attributes.starts));
  inputs.push_back(writer.integers(node.name + "/ends", attributes.ends));
  std::vector<std::int64_t> axes = attributes.axes;
  for (std::size_t i = axes.size(); axes.empty() && i < attributes.starts.size(); ++i)
    axes.push_back(static_cast<std::int64_t>(i));
  inputs.push_back(writer.integers(node.name + "/axes", axes));
  if (!attributes.steps.empty()) inputs.push_back(writer.integers(node.name + "/steps", attributes.steps));
  writer.add("Slice", node.name, inputs);
}

void write_pad(GraphWriter& writer, const Node& node, const PadAttributes& attributes) {
  if (attributes.mode != PadMode::constant) fail_unsupported("padding that is not constant");
  double value = attributes.value;
  if (writer.is_integer(node.inputs[0])) {
    const Quantization& q = writer.quantization(node.inputs[0]);
    value = (value - q.zero_point) * q.scale;
  }
  const std::string x = writer.operand(node.inputs[0]);
  std::vector<std::int64_t> pads = attributes.begin;
  pads.insert(pads.end(), attributes.end.begin(), attributes.end.end());
  const std::string amounts = writer.integers(node.name + "/pads", pads);
  const std::string fill = writer.number(node.name + "/value", static_cast<float>(value));
  writer.add("Pad", node.name, {x, amounts, fill});
}

void write_split(GraphWriter& writer, const Node& node, const SplitAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  const std::string sizes = writer.integers(node.name + "/sizes", attributes.sizes);
  set(writer.add("Split", node.name, {x, sizes}, static_cast<int>(node.outputs.size())), "axis",
      attributes.axis);
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    writer.store(node.outputs[o], writer.moved_quantization(node), static_cast<int>(o));
}

void write_depth_to_space(GraphWriter& writer, const Node& node, const DepthToSpaceAttributes& attributes) {
  if (attributes.column_row_depth) fail_unsupported("DepthToSpace in mode CRD");
  const std::string x = writer.operand(node.inputs[0]);
  set(writer.add(attributes.inverse ? "SpaceToDepth" : "DepthToSpace", node.name, {x}), "blocksize",
      attributes.block);
}

}  // namespace

bool write_movement_layer(GraphWriter& writer, const Node& node) {
  if (const auto* split = layer_if<Split>(node)) {
    write_split(writer, node, split->attributes());
    return true;
  }
  if (const auto* reshape = layer_if<Reshape>(node)) {
    write_reshape(writer, node, reshape->attributes());
  } else if (const auto* concat = layer_if<Concat>(node)) {
    write_concat(writer, node, concat->attributes());
  } else if (const auto* slice = layer_if<Slice>(node)) {
    write_slice(writer, node, slice->attributes());
  } else if (const auto* pad = layer_if<Pad>(node)) {
    write_pad(writer, node, pad->attributes());
  } else if (const auto* transpose = layer_if<Transpose>(node)) {
    const std::string x = writer.operand(node.inputs[0]);
    set(writer.add("Transpose", node.name, {x}), "perm", transpose->attributes().permutation);
  } else if (const auto* depth = layer_if<DepthToSpace>(node)) {
    write_depth_to_space(writer, node, depth->attributes());
  } else {
    return false;
  }
  writer.store(node.outputs[0], writer.moved_quantization(node));
  return true;
}

}  // namespace pipit::onnx
