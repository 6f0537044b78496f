// Sequences that are made and taken apart in one graph: they are lists of values while the file is read, and no layer
// sees them.
#include <algorithm>

#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

using Integers = std::vector<std::int64_t>;
using Values = std::vector<ValueId>;

// A position in [0, end), counted from the end where it is negative.
std::size_t position_below(std::int64_t position, std::size_t end, std::size_t length) {
  const auto count = static_cast<std::int64_t>(length);
  if (position < -count || position >= static_cast<std::int64_t>(end))
    fail("position {} in a sequence of {} values", position, length);
  return static_cast<std::size_t>(position < 0 ? position + count : position);
}

std::int64_t one_integer(NodeContext& node, int index, const char* what) {
  const Integers values = node.constant_integers(index, what);
  if (values.size() != 1) fail("input '{}' has {} elements, expected 1", what, values.size());
  return values[0];
}

ValueId reshaped_value(NodeContext& node, ValueId x, const Shape& shape, const char* part) {
  return node.emit(std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, part);
}

Shape with_axis(const Shape& shape, std::int64_t axis) {
  if (shape.rank() == kMaxRank)
    fail_unsupported("{} dimensions; at most {} are supported", kMaxRank + 1, kMaxRank);
  Integers extents(shape.dims().begin(), shape.dims().end());
  extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  return shape_from_onnx(extents);
}

Shape without_axis(const Shape& shape, std::int64_t axis) {
  Integers extents(shape.dims().begin(), shape.dims().end());
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(axis));
  return shape_from_onnx(extents);
}

// All values, each with a new dimension `axis` of 1, one after another along it.
ValueId stacked_values(NodeContext& node, const Values& values, std::int64_t axis,
                       const char* part = nullptr) {
  Values parts;
  for (std::size_t i = 0; i < values.size(); ++i)
    parts.push_back(reshaped_value(node, values[i], with_axis(node.desc(values[i]).shape, axis),
                                   fmt::format("unsqueezed{}", i).c_str()));
  return node.emit(std::make_shared<Concat>(ConcatAttributes{axis}), std::move(parts), part);
}

std::vector<ValueId> convert_sequence_construct(NodeContext& node) {
  for (int i = 0; i < node.input_count(); ++i) node.input(i);
  return {node.shared().sequences.add(node.inputs())};
}

std::vector<ValueId> convert_sequence_empty(NodeContext& node) {
  node.attributes().ignore({"dtype"});
  return {node.shared().sequences.add({})};
}

// Sizes along the axis: those given, or as many of one size as fit and the rest.
Integers part_sizes(NodeContext& node, std::int64_t extent) {
  constexpr std::int64_t kMaxParts = 4096;  // before a list of them is made
  std::int64_t size = 1;
  if (node.has_input(1)) {
    if (node.input_shape(1).rank() == 1) return node.constant_integers(1, "split");
    size = one_integer(node, 1, "split");
  }
  if (size < 1) fail("parts of {}", size);
  if (extent / size >= kMaxParts) fail_unsupported("{} parts; at most {}", extent / size, kMaxParts);
  Integers sizes(static_cast<std::size_t>(extent / size), size);
  if (extent % size != 0) sizes.push_back(extent % size);
  return sizes;
}

std::vector<ValueId> convert_split_to_sequence(NodeContext& node) {
  const Shape& shape = node.input_shape(0);
  const std::int64_t axis =
      normalize_axis(node.attributes().integer("axis", 0), shape.rank(), "SplitToSequence");
  const bool keeps = node.attributes().flag("keepdims", true) || node.has_input(1);
  const Integers sizes = part_sizes(node, shape[static_cast<int>(axis)]);
  if (sizes.empty()) return {node.shared().sequences.add({})};
  Values parts =
      node.emit_all(std::make_shared<Split>(SplitAttributes{axis, sizes}), {node.input(0)}, "split");
  for (std::size_t i = 0; i < parts.size() && !keeps; ++i) {
    parts[i] =
        reshaped_value(node, parts[i], without_axis(shape, axis), fmt::format("squeezed{}", i).c_str());
  }
  return {node.shared().sequences.add(std::move(parts))};
}

std::vector<ValueId> convert_sequence_at(NodeContext& node) {
  const Values& values = node.sequence(0);
  if (node.known(1) != nullptr) {
    const std::int64_t position = one_integer(node, 1, "position");
    return {values[position_below(position, values.size(), values.size())]};
  }
  // The position comes at run time: one of equal values.
  for (const ValueId value : values) {
    if (!(node.desc(value) == node.desc(values[0])))
      fail_unsupported("the position is computed at run time, and the sequence holds {} and {}",
                       node.desc(values[0]).str(), node.desc(value).str());
  }
  if (values.empty()) fail("a value of an empty sequence");
  const ValueId position = reshaped_value(node, node.input(1), Shape{}, "position");
  return {node.emit<Gather>({stacked_values(node, values, 0, "stacked"), position}, GatherAttributes{0})};
}

std::vector<ValueId> convert_concat_from_sequence(NodeContext& node) {
  const Values& values = node.sequence(0);
  if (values.empty()) fail("an empty sequence");
  const int rank = node.desc(values[0]).shape.rank();
  const bool is_new = node.attributes().flag("new_axis", false);
  const std::int64_t axis = normalize_axis(node.attributes().required_integer("axis"),
                                           rank + (is_new ? 1 : 0), "ConcatFromSequence");
  if (is_new) return {stacked_values(node, values, axis)};
  return {node.emit<Concat>(values, ConcatAttributes{axis})};
}

std::vector<ValueId> convert_sequence_insert(NodeContext& node) {
  Values values = node.sequence(0);
  std::size_t at = values.size();
  if (node.has_input(2))
    at = position_below(one_integer(node, 2, "position"), values.size() + 1, values.size());
  values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), node.input(1));
  return {node.shared().sequences.add(std::move(values))};
}

std::vector<ValueId> convert_sequence_erase(NodeContext& node) {
  Values values = node.sequence(0);
  const std::int64_t position = node.has_input(1) ? one_integer(node, 1, "position") : -1;
  const std::size_t at = position_below(position, values.size(), values.size());
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
  return {node.shared().sequences.add(std::move(values))};
}

std::vector<ValueId> convert_sequence_length(NodeContext& node) {
  return {node.add_constant(Tensor::scalar(static_cast<std::int64_t>(node.sequence(0).size())))};
}

constexpr Operator kSequenceOperators[] = {
    {"ConcatFromSequence", 11, kLastOpset, 1, 1, convert_concat_from_sequence, true},
    {"SequenceAt", 11, kLastOpset, 2, 2, convert_sequence_at, true},
    {"SequenceConstruct", 11, kLastOpset, 1, kVariadic, convert_sequence_construct},
    {"SequenceEmpty", 11, kLastOpset, 0, 0, convert_sequence_empty},
    {"SequenceErase", 11, kLastOpset, 1, 2, convert_sequence_erase, true},
    {"SequenceInsert", 11, kLastOpset, 2, 3, convert_sequence_insert, true},
    {"SequenceLength", 11, kLastOpset, 1, 1, convert_sequence_length, true},
    {"SplitToSequence", 11, kLastOpset, 1, 2, convert_split_to_sequence},
};

}  // namespace

std::span<const Operator> sequence_operators() {
  return kSequenceOperators;
}

}  // namespace pipit::internal::onnx
