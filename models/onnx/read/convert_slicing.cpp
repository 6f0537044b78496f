// Concat, Split, Slice and Pad.
#include "layers/ops/slicing.h"

#include <numeric>

#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

using Integers = std::vector<std::int64_t>;

std::vector<ValueId> convert_concat(NodeContext& node) {
  const ConcatAttributes attributes{node.attributes().required_integer("axis")};
  for (int i = 0; i < node.input_count(); ++i) node.input(i);
  return {node.emit<Concat>(node.inputs(), attributes)};
}

std::vector<ValueId> emit_split(NodeContext& node, std::int64_t axis, Integers sizes) {
  if (sizes.size() != static_cast<std::size_t>(node.output_count())) {
    fail("{} sizes for {} outputs", sizes.size(), node.output_count());
  }
  return node.emit_all(std::make_shared<Split>(SplitAttributes{axis, std::move(sizes)}), {node.input(0)});
}

std::int64_t split_extent(NodeContext& node, std::int64_t axis) {
  const Shape& shape = node.input_shape(0);
  return shape[normalize_axis(axis, shape.rank(), "Split")];
}

// Before opset 18: equal parts.
std::vector<ValueId> split(NodeContext& node, std::optional<Integers> sizes) {
  const std::int64_t axis = node.attributes().integer("axis", 0);
  if (!sizes) {
    const std::int64_t extent = split_extent(node, axis);
    const std::int64_t parts = node.output_count();
    if (parts == 0 || extent % parts != 0)
      fail("an extent of {} does not split into {} equal parts", extent, parts);
    sizes = Integers(static_cast<std::size_t>(parts), extent / parts);
  }
  return emit_split(node, axis, *std::move(sizes));
}

std::vector<ValueId> convert_split_of_attribute(NodeContext& node) {
  return split(node, node.attributes().integers("split"));
}

std::vector<ValueId> convert_split_of_input(NodeContext& node) {
  return split(node, node.optional_integers(1, "split"));
}

// From opset 18 on: num_outputs parts of ceil(extent / num_outputs), the last one smaller where needed.
std::vector<ValueId> convert_split_with_count(NodeContext& node) {
  if (!node.attributes().has("num_outputs")) return convert_split_of_input(node);
  if (node.has_input(1)) fail("both input 'split' and attribute 'num_outputs' are given");
  const std::int64_t axis = node.attributes().integer("axis", 0);
  const std::int64_t parts = node.attributes().required_integer("num_outputs");
  const std::int64_t extent = split_extent(node, axis);
  if (parts < 1 || parts != node.output_count()) {
    fail("attribute 'num_outputs' is {} for {} outputs", parts, node.output_count());
  }
  const std::int64_t size = (extent + parts - 1) / parts;
  const std::int64_t last = extent - size * (parts - 1);
  if (last < 0) fail("an extent of {} does not split into {} parts of {}", extent, parts, size);
  Integers sizes(static_cast<std::size_t>(parts), size);
  sizes.back() = last;
  return emit_split(node, axis, std::move(sizes));
}

std::vector<ValueId> slice(NodeContext& node, Integers starts, Integers ends, std::optional<Integers> axes,
                           std::optional<Integers> steps) {
  if (!axes) {
    axes.emplace(starts.size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (!steps) steps.emplace(starts.size(), 1);
  return {node.emit<Slice>({node.input(0)}, SliceAttributes{std::move(starts), std::move(ends),
                                                            *std::move(axes), *std::move(steps)})};
}

std::vector<ValueId> convert_slice_of_attributes(NodeContext& node) {
  auto starts = node.attributes().integers("starts");
  auto ends = node.attributes().integers("ends");
  if (!starts || !ends) fail("attributes 'starts' and 'ends' are needed");
  return slice(node, *std::move(starts), *std::move(ends), node.attributes().integers("axes"), std::nullopt);
}

std::vector<ValueId> convert_slice_of_inputs(NodeContext& node) {
  return slice(node, node.constant_integers(1, "starts"), node.constant_integers(2, "ends"),
               node.optional_integers(3, "axes"), node.optional_integers(4, "steps"));
}

PadMode read_pad_mode(NodeContext& node) {
  const std::string mode = node.attributes().text("mode", "constant");
  if (mode == "constant") return PadMode::constant;
  if (mode == "reflect") return PadMode::reflect;
  if (mode == "edge") return PadMode::edge;
  if (mode == "wrap") return PadMode::wrap;
  fail("attribute 'mode' is '{}', expected constant, reflect, edge or wrap", mode);
}

// `pads` holds the begins of all axes, then the ends.
std::vector<ValueId> pad(NodeContext& node, const Integers& pads, std::optional<Integers> axes,
                         double value) {
  const int rank = node.input_shape(0).rank();
  if (!axes) {
    axes.emplace(static_cast<std::size_t>(rank));
    std::iota(axes->begin(), axes->end(), 0);
  }
  const std::size_t count = axes->size();
  if (pads.size() != 2 * count) fail("{} pads for {} dimensions", pads.size(), count);
  PadAttributes attributes{.mode = read_pad_mode(node), .value = value};
  attributes.begin.assign(static_cast<std::size_t>(rank), 0);
  attributes.end = attributes.begin;
  for (std::size_t i = 0; i < count; ++i) {
    const auto axis = static_cast<std::size_t>(normalize_axis((*axes)[i], rank, "Pad"));
    attributes.begin[axis] = pads[i];
    attributes.end[axis] = pads[count + i];
  }
  return {node.emit<Pad>({node.input(0)}, std::move(attributes))};
}

std::vector<ValueId> convert_pad_of_attributes(NodeContext& node) {
  const auto pads = node.attributes().integers("pads");
  if (!pads) fail("attribute 'pads' is missing");
  return pad(node, *pads, std::nullopt, node.attributes().number("value", 0));
}

std::vector<ValueId> convert_pad_of_inputs(NodeContext& node) {
  const Integers pads = node.constant_integers(1, "pads");
  const double value = node.has_input(2) ? node.constant_number(2, "constant_value") : 0;
  return pad(node, pads, node.optional_integers(3, "axes"), value);
}

constexpr Operator kSlicingOperators[] = {
    {"Concat", 4, kLastOpset, 1, kVariadic, convert_concat},
    {"Pad", 2, 10, 1, 1, convert_pad_of_attributes},
    {"Pad", 11, 17, 2, 3, convert_pad_of_inputs},
    {"Pad", 18, kLastOpset, 2, 4, convert_pad_of_inputs},
    {"Slice", 1, 9, 1, 1, convert_slice_of_attributes},
    {"Slice", 10, kLastOpset, 3, 5, convert_slice_of_inputs},
    {"Split", 2, 12, 1, 1, convert_split_of_attribute},
    {"Split", 13, 17, 1, 2, convert_split_of_input},
    {"Split", 18, kLastOpset, 1, 2, convert_split_with_count},
};

}  // namespace

std::span<const Operator> slicing_operators() {
  return kSlicingOperators;
}

}  // namespace pipit::internal::onnx
