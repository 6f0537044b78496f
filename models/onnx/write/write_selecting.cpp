// Layers that choose among elements or convert them as ONNX nodes.
#include <algorithm>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/grid_sample.h"
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
      return "half_pixel_symmetric";
  }
  return "";
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

const char* interpolation_name(ResizeMode mode) {
  static constexpr const char* kModes[] = {"nearest", "linear", "cubic"};
  return kModes[static_cast<std::size_t>(mode)];
}

// By sizes where there are any, which holds for this batch only, else by scales.
void write_resize(GraphWriter& writer, const Node& node, const ResizeAttributes& attributes) {
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
  set(resize, "mode", interpolation_name(attributes.mode));
  set(resize, "coordinate_transformation_mode", coordinates);
  if (attributes.mode == ResizeMode::nearest) set(resize, "nearest_mode", nearest_name(attributes.nearest));
  const ResizeFilter& filter = attributes.filter;
  if (attributes.mode == ResizeMode::cubic) set(resize, "cubic_coeff_a", filter.cubic_a);
  if (filter.antialias) set(resize, "antialias", std::int64_t{1});
  if (filter.exclude_outside) set(resize, "exclude_outside", std::int64_t{1});
}

// Opset 20 has other names, and any number of spatial dimensions.
void write_grid_sample(GraphWriter& writer, const Node& node, const GridSampleAttributes& attributes) {
  static constexpr const char* kOldModes[] = {"nearest", "bilinear", "bicubic"};
  static constexpr const char* kPaddings[] = {"zeros", "border", "reflection"};
  const std::string x = writer.operand(node.inputs[0]);
  const std::string grid = writer.operand(node.inputs[1]);
  onnx_pb::NodeProto& proto = writer.add("GridSample", node.name, {x, grid});
  set(proto, "mode",
      writer.opset() < 20 ? kOldModes[static_cast<std::size_t>(attributes.mode)]
                          : interpolation_name(attributes.mode));
  set(proto, "padding_mode", kPaddings[static_cast<std::size_t>(attributes.padding)]);
  set(proto, "align_corners", std::int64_t{attributes.align_corners});
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
  } else if (const auto* grid_sample = layer_if<GridSample>(node)) {
    write_grid_sample(writer, node, grid_sample->attributes());
  } else {
    return false;
  }
  writer.store(node.outputs[0]);
  return true;
}

}  // namespace pipit::internal::onnx
