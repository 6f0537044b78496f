// Resize, its predecessor Upsample, and GridSample.
#include "layers/ops/grid_sample.h"
#include "layers/ops/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

ResizeMode read_mode(NodeContext& node) {
  const std::string mode = node.attributes().text("mode", "nearest");
  if (mode == "nearest") return ResizeMode::nearest;
  if (mode == "linear" || mode == "bilinear" || mode == "cubic") {
    const DType type = node.desc(node.input(0)).dtype;
    if (type != DType::f32 && type != DType::f64)
      fail_unsupported("attribute 'mode' is '{}' for {}; it needs floating point, nearest takes every type",
                       mode, dtype_name(type));
    return mode == "cubic" ? ResizeMode::cubic : ResizeMode::linear;
  }
  fail_unsupported("attribute 'mode' is '{}'; nearest, linear and cubic are supported", mode);
}

ResizeCoordinates read_coordinates(NodeContext& node) {
  const std::string mode = node.attributes().text("coordinate_transformation_mode", "half_pixel");
  if (mode == "half_pixel") return ResizeCoordinates::half_pixel;
  if (mode == "half_pixel_symmetric") return ResizeCoordinates::half_pixel_symmetric;
  if (mode == "pytorch_half_pixel") return ResizeCoordinates::pytorch_half_pixel;
  if (mode == "align_corners") return ResizeCoordinates::align_corners;
  if (mode == "asymmetric") return ResizeCoordinates::asymmetric;
  fail_unsupported(
      "attribute 'coordinate_transformation_mode' is '{}'; half_pixel, half_pixel_symmetric, "
      "pytorch_half_pixel, align_corners and asymmetric are supported",
      mode);
}

ResizeNearest read_nearest(NodeContext& node) {
  const std::string mode = node.attributes().text("nearest_mode", "round_prefer_floor");
  if (mode == "round_prefer_floor") return ResizeNearest::round_prefer_floor;
  if (mode == "round_prefer_ceil") return ResizeNearest::round_prefer_ceil;
  if (mode == "floor") return ResizeNearest::floor;
  if (mode == "ceil") return ResizeNearest::ceil;
  fail("attribute 'nearest_mode' is '{}', expected round_prefer_floor, round_prefer_ceil, floor or ceil",
       mode);
}

int checked_rank(NodeContext& node) {
  const int rank = node.input_shape(0).rank();
  if (rank == 0) fail("input 0 is a scalar");
  return rank;
}

std::vector<float> constant_scales(NodeContext& node, int index) {
  const auto tensor = node.constant(index, "scales");
  const std::span values = tensor->values<float>();
  return {values.begin(), values.end()};
}

using Axes = std::vector<int>;

// The dimensions that scales and sizes speak of.
Axes read_axes(NodeContext& node, int rank) {
  Axes axes;
  if (const auto given = node.attributes().integers("axes")) {
    for (const std::int64_t axis : *given) {
      axes.push_back(normalize_axis(axis, rank, "Resize"));
      if (std::count(axes.begin(), axes.end(), axes.back()) > 1) fail("axis {} is given twice", axis);
    }
  } else {
    axes.resize(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

void apply_scales(ResizeAttributes& attributes, const Axes& axes, std::span<const float> scales) {
  if (scales.size() != axes.size()) fail("{} scales for {} dimensions", scales.size(), axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i)
    attributes.scales[static_cast<std::size_t>(axes[i])] = scales[i];
}

// Sizes fix the scales; a policy other than stretch takes one scale for all axes and derives the sizes.
void apply_sizes(ResizeAttributes& attributes, const Axes& axes, const Shape& input,
                 std::vector<std::int64_t> sizes, const std::string& policy) {
  if (sizes.size() != axes.size()) fail("{} sizes for {} dimensions", sizes.size(), axes.size());
  std::vector<double> scales;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t extent = input[axes[i]];
    if (sizes[i] < 1 || extent < 1) fail("size {} for dimension {} of {}", sizes[i], axes[i], input.str());
    scales.push_back(static_cast<double>(sizes[i]) / static_cast<double>(extent));
  }
  if (policy != "stretch" && !axes.empty()) {
    if (policy != "not_larger" && policy != "not_smaller") {
      fail("attribute 'keep_aspect_ratio_policy' is '{}', expected stretch, not_larger or not_smaller",
           policy);
    }
    const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
    const double scale = policy == "not_larger" ? *least : *most;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const double size = std::floor(scale * static_cast<double>(input[axes[i]]) + 0.5);
      if (!(size >= 1 && size < 1e9))
        fail("dimension {} of {} would get extent {}", axes[i], input.str(), size);
      scales[i] = scale;
      sizes[i] = static_cast<std::int64_t>(size);
    }
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    attributes.scales[static_cast<std::size_t>(axes[i])] = static_cast<float>(scales[i]);
    attributes.sizes[static_cast<std::size_t>(axes[i])] = sizes[i];
  }
}

// An optional input may also be given as an empty tensor.
bool is_given(NodeContext& node, int index) {
  return node.has_input(index) && node.input_shape(index).elements() > 0;
}

std::vector<ValueId> convert_resize(NodeContext& node) {
  AttributeReader& given = node.attributes();
  given.ignore({"extrapolation_value"});  // of tf_crop_and_resize, which is refused
  ResizeAttributes attributes;
  attributes.filter = {given.number("cubic_coeff_a", -0.75F), given.flag("antialias", false),
                       given.flag("exclude_outside", false)};
  attributes.mode = read_mode(node);
  attributes.coordinates = read_coordinates(node);
  attributes.nearest = read_nearest(node);
  attributes.rank = checked_rank(node);
  const Axes axes = read_axes(node, attributes.rank);
  const std::string policy = given.text("keep_aspect_ratio_policy", "stretch");
  if (is_given(node, 2) == is_given(node, 3)) fail("exactly one of 'scales' and 'sizes' is needed");
  if (is_given(node, 2)) {
    apply_scales(attributes, axes, constant_scales(node, 2));
  } else {
    apply_sizes(attributes, axes, node.input_shape(0), node.constant_integers(3, "sizes"), policy);
  }
  return {node.emit<Resize>({node.input(0)}, attributes)};
}

// Upsample, and Resize of opset 10: position / scale, rounded down when enlarging and up when shrinking, as
// ONNX Runtime reads the silence of the specification.
std::vector<ValueId> resize_by(NodeContext& node, std::span<const float> scales) {
  ResizeAttributes attributes;
  attributes.mode = read_mode(node);
  attributes.coordinates = ResizeCoordinates::asymmetric;
  attributes.rank = checked_rank(node);
  apply_scales(attributes, read_axes(node, attributes.rank), scales);
  const bool enlarges = std::ranges::any_of(scales, [](float scale) { return scale > 1; });
  const bool shrinks = std::ranges::any_of(scales, [](float scale) { return scale < 1; });
  if (enlarges && shrinks && attributes.mode == ResizeMode::nearest) {
    fail_unsupported("nearest mode that enlarges one dimension and shrinks another before opset 11");
  }
  attributes.nearest = shrinks ? ResizeNearest::ceil : ResizeNearest::floor;
  return {node.emit<Resize>({node.input(0)}, attributes)};
}

std::vector<ValueId> convert_resize_or_upsample_of_input(NodeContext& node) {
  return resize_by(node, constant_scales(node, 1));
}

std::vector<ValueId> convert_upsample_of_attribute(NodeContext& node) {
  const auto scales = node.attributes().numbers("scales");
  if (!scales) fail("attribute 'scales' is missing");
  return resize_by(node, *scales);
}

std::vector<ValueId> convert_grid_sample(NodeContext& node) {
  GridSampleAttributes attributes;
  const std::string mode = node.attributes().text("mode", "linear");
  if (mode == "nearest") {
    attributes.mode = ResizeMode::nearest;
  } else if (mode == "cubic" || mode == "bicubic") {
    attributes.mode = ResizeMode::cubic;
  } else if (mode != "linear" && mode != "bilinear") {
    fail("attribute 'mode' is '{}', expected nearest, linear or cubic", mode);
  }
  const std::string padding = node.attributes().text("padding_mode", "zeros");
  if (padding == "border") {
    attributes.padding = GridPadding::border;
  } else if (padding == "reflection") {
    attributes.padding = GridPadding::reflection;
  } else if (padding != "zeros") {
    fail("attribute 'padding_mode' is '{}', expected zeros, border or reflection", padding);
  }
  attributes.align_corners = node.attributes().flag("align_corners", false);
  return {node.emit<GridSample>({node.input(0), node.input(1)}, attributes)};
}

constexpr Operator kResizeOperators[] = {
    {"GridSample", 16, kLastOpset, 2, 2, convert_grid_sample},
    {"Resize", 10, 10, 2, 2, convert_resize_or_upsample_of_input},
    {"Resize", 11, 12, 3, 4, convert_resize},
    {"Resize", 13, kLastOpset, 1, 4, convert_resize},
    {"Upsample", 7, 8, 1, 1, convert_upsample_of_attribute},
    {"Upsample", 9, 9, 2, 2, convert_resize_or_upsample_of_input},
};

}  // namespace

std::span<const Operator> resize_operators() {
  return kResizeOperators;
}

}  // namespace pipit::internal::onnx
