// Layers that move elements as ONNX nodes. INT8 values keep their scale.
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

// Dimensions that stay are written as 0, "as in the input", so that the model fits other batches.
void write_reshape(GraphWriter& writer, const Node& node, const ReshapeAttributes& attributes) {
  const Shape& from = writer.desc(node.inputs[0]).shape;
  const auto dims = attributes.shape.dims();
  std::vector<std::int64_t> shape(dims.begin(), dims.end());
  const bool empty = attributes.shape.elements() == 0;  // 0 is then what it says
  if (!empty && from.rank() > 0 && !shape.empty() && shape[0] == from[0]) shape[0] = 0;
  const std::string x = writer.operand(node.inputs[0]);
  const std::string to = writer.integers(node.name + "/shape", shape);
  onnx_pb::NodeProto& proto = writer.add("Reshape", node.name, {x, to});
  if (empty) set(proto, "allowzero", std::int64_t{1});
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

const char* pad_mode(PadMode mode) {
  switch (mode) {
    case PadMode::reflect:
      return "reflect";
    case PadMode::edge:
      return "edge";
    case PadMode::constant:
      return "constant";
    case PadMode::wrap:
      return "wrap";
  }
  return "";
}

void write_pad(GraphWriter& writer, const Node& node, const PadAttributes& attributes) {
  const char* mode = pad_mode(attributes.mode);
  double value = attributes.value;
  if (writer.is_integer(node.inputs[0])) {
    const Quantization& q = writer.quantization(node.inputs[0]);
    value = (value - q.zero_point) * q.scale;
  }
  const std::string x = writer.operand(node.inputs[0]);
  std::vector<std::int64_t> pads = attributes.begin;
  pads.insert(pads.end(), attributes.end.begin(), attributes.end.end());
  const std::string amounts = writer.integers(node.name + "/pads", pads);
  const std::string fill = writer.number(node.name + "/value", value, node.inputs[0]);
  onnx_pb::NodeProto& pad = writer.add("Pad", node.name, {x, amounts, fill});
  if (attributes.mode != PadMode::constant) set(pad, "mode", mode);
}

void write_split(GraphWriter& writer, const Node& node, const SplitAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  const std::string sizes = writer.integers(node.name + "/sizes", attributes.sizes);
  set(writer.add("Split", node.name, {x, sizes}, static_cast<int>(node.outputs.size())), "axis",
      attributes.axis);
  for (std::size_t o = 0; o < node.outputs.size(); ++o) writer.store_moved(node, static_cast<int>(o));
}

// SpaceToDepth in an order that its operator does not have: [N, C, H / b, b, W / b, b], both blocks after C.
void write_space_to_depth_by_columns(GraphWriter& writer, const Node& node, std::int64_t block) {
  const Shape& shape = writer.desc(node.inputs[0]).shape;
  const std::int64_t rows = shape[2] / block, columns = shape[3] / block;
  const std::string x = writer.operand(node.inputs[0]);
  const std::string apart = writer.integers(node.name + "/apart", {0, shape[1], rows, block, columns, block});
  writer.add("Reshape", node.name + "/blocks", {x, apart});
  set(writer.add("Transpose", node.name, {writer.last_result()}), "perm",
      std::vector<std::int64_t>{0, 1, 3, 5, 2, 4});
  const std::string joined = writer.last_result();
  const std::string shape_name =
      writer.integers(node.name + "/shape", {0, shape[1] * block * block, rows, columns});
  writer.add("Reshape", node.name + "/depth", {joined, shape_name});
}

void write_depth_to_space(GraphWriter& writer, const Node& node, const DepthToSpaceAttributes& attributes) {
  if (attributes.inverse && attributes.column_row_depth) {
    write_space_to_depth_by_columns(writer, node, attributes.block);
    return;
  }
  const std::string x = writer.operand(node.inputs[0]);
  onnx_pb::NodeProto& proto =
      writer.add(attributes.inverse ? "SpaceToDepth" : "DepthToSpace", node.name, {x});
  set(proto, "blocksize", attributes.block);
  if (attributes.column_row_depth) set(proto, "mode", "CRD");
}

// The batch is written as 1, which broadcasts to any.
void write_expand(GraphWriter& writer, const Node& node, const ExpandAttributes& attributes) {
  const Shape& from = writer.desc(node.inputs[0]).shape;
  const auto dims = attributes.shape.dims();
  std::vector<std::int64_t> shape(dims.begin(), dims.end());
  if (from.rank() == attributes.shape.rank() && from.rank() > 0 && shape[0] == from[0]) shape[0] = 1;
  const std::string x = writer.operand(node.inputs[0]);
  writer.add("Expand", node.name, {x, writer.integers(node.name + "/shape", shape)});
}

void write_gather(GraphWriter& writer, const Node& node, const GatherAttributes& attributes) {
  const std::string data = writer.operand(node.inputs[0]);
  const std::string indices = writer.operand(node.inputs[1]);
  set(writer.add("Gather", node.name, {data, indices}), "axis", attributes.axis);
}

void write_tile(GraphWriter& writer, const Node& node, const TileAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  writer.add("Tile", node.name, {x, writer.integers(node.name + "/repeats", attributes.repeats)});
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
  } else if (const auto* expand = layer_if<Expand>(node)) {
    write_expand(writer, node, expand->attributes());
  } else if (const auto* gather = layer_if<Gather>(node)) {
    write_gather(writer, node, gather->attributes());
  } else if (const auto* tile = layer_if<Tile>(node)) {
    write_tile(writer, node, tile->attributes());
  } else {
    return false;
  }
  writer.store_moved(node);
  return true;
}

}  // namespace pipit::internal::onnx
