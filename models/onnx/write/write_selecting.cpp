// Layers that choose among elements or convert them as ONNX nodes.
#include <algorithm>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/reduce.h"
#include "layers/ops/resize.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

const char* coordinates_name(ResizeCoordinates coordinates) {
  switch (coordinates) {
    case ResizeCoordinates::half_pixel:
      return "half_pixel";
    case ResizeCoordinates::pytorch_half_pixel:
      return "pytorch_half_pixel";
    case ResizeCoordinates::align_corners:
      return "align_corners";
    case ResizeCoordinates::asymmetric:
      return "asymmetric";
    case ResizeCoordinates::half_pixel_symmetric:
      break;
  }
  fail_unsupported("Resize with half_pixel_symmetric, which opset 13 does not have");
}

const char* nearest_name(ResizeNearest nearest) {
  switch (nearest) {
    case ResizeNearest::round_prefer_ceil:
      return "round_prefer_ceil";
    case ResizeNearest::floor:
      return "floor";
    case ResizeNearest::ceil:
      return "ceil";
    case ResizeNearest::round_prefer_floor:
      break;
  }
  return "round_prefer_floor";
}

// By sizes where there are any, which holds for this batch only, else by scales.
void write_resize(GraphWriter& writer, const Node& node, const ResizeAttributes& attributes) {
  if (is_filtered(attributes)) fail_unsupported("Resize by cubic or antialiased kernels");
  const char* coordinates = coordinates_name(attributes.coordinates);
  const auto rank = static_cast<std::size_t>(attributes.rank);
  const std::string x = writer.operand(node.inputs[0]);
  GraphWriter::Names inputs{x, ""};
  const std::span scales(attributes.scales.data(), rank);
  if (std::any_of(attributes.sizes.begin(), attributes.sizes.end(),
                  [](std::int64_t size) { return size != 0; })) {
    const auto dims = writer.desc(node.outputs[0]).shape.dims();
    inputs.emplace_back();
    inputs.push_back(writer.integers(node.name + "/sizes", {dims.begin(), dims.end()}));
  } else {
    inputs.push_back(
        writer.initializer(node.name + "/scales", Tensor::from<float>(Shape{attributes.rank}, scales)));
  }
  onnx_pb::NodeProto& resize = writer.add("Resize", node.name, inputs);
  set(resize, "mode", attributes.mode == ResizeMode::nearest ? "nearest" : "linear");
  set(resize, "coordinate_transformation_mode", coordinates);
  if (attributes.mode == ResizeMode::nearest) set(resize, "nearest_mode", nearest_name(attributes.nearest));
}

}  // namespace

bool write_selecting_layer(GraphWriter& writer, const Node& node) {
  if (layer_if<Where>(node) != nullptr) {
    GraphWriter::Names inputs;
    for (const ValueId id : node.inputs) inputs.push_back(writer.operand(id));
    writer.add("Where", node.name, inputs);
  } else if (const auto* cast = layer_if<Cast>(node)) {
    const std::string x = writer.operand(node.inputs[0]);
    set(writer.add("Cast", node.name, {x}), "to", std::int64_t{data_type(cast->attributes().to)});
  } else if (const auto* arg_max = layer_if<ArgMax>(node)) {
    const ArgMaxAttributes& a = arg_max->attributes();
    const std::string x = writer.operand(node.inputs[0]);
    onnx_pb::NodeProto& proto = writer.add(a.minimum ? "ArgMin" : "ArgMax", node.name, {x});
    set(proto, "axis", a.axis);
    set(proto, "keepdims", std::int64_t{a.keep_dims});
    if (a.select_last) set(proto, "select_last_index", std::int64_t{1});
  } else if (const auto* resize = layer_if<Resize>(node)) {
    write_resize(writer, node, resize->attributes());
  } else {
    return false;
  }
  writer.store(node.outputs[0]);
  return true;
}

}  // namespace pipit::internal::onnx
