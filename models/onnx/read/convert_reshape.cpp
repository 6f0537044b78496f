// Reshape, Flatten, Squeeze, Unsqueeze, and what is the identity at inference.
#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/reshaping.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> emit_reshape(NodeContext& node, const Shape& shape) {
  return {node.emit<Reshape>({node.input(0)}, ReshapeAttributes{shape})};
}

// 0 takes the input's extent (unless allowzero), one -1 what is left.
std::vector<ValueId> convert_reshape(NodeContext& node) {
  std::vector<std::int64_t> dims = node.constant_integers(1, "shape");
  const bool allow_zero = node.attributes().flag("allowzero", false);
  const Shape& input = node.input_shape(0);
  const std::string asked = fmt::format("{}", fmt::join(dims, ","));
  auto open = dims.end();
  for (auto dim = dims.begin(); dim != dims.end(); ++dim) {
    const auto axis = static_cast<int>(std::min<std::ptrdiff_t>(dim - dims.begin(), kMaxRank));
    if (*dim == 0 && !allow_zero) {
      if (axis >= input.rank()) fail("shape [{}] copies dimension {} of input {}", asked, axis, input.str());
      *dim = input[axis];
    } else if (*dim == -1) {
      if (open != dims.end()) fail("shape [{}] has more than one -1", asked);
      open = dim;
    }
  }
  if (open != dims.end()) {
    *open = 1;
    const std::int64_t rest = shape_from_onnx(dims).elements();
    if (rest == 0 || input.elements() % rest != 0)
      fail("input {} does not fit shape [{}]", input.str(), asked);
    *open = input.elements() / rest;
  }
  return emit_reshape(node, shape_from_onnx(dims));
}

std::vector<ValueId> convert_flatten(NodeContext& node) {
  const Shape& input = node.input_shape(0);
  std::int64_t axis = node.attributes().integer("axis", 1);
  if (axis < -input.rank() || axis > input.rank())
    fail("attribute 'axis' is {} for input {}", axis, input.str());
  if (axis < 0) axis += input.rank();
  const auto split = static_cast<std::size_t>(axis);
  const Shape outer(input.dims().first(split));
  const Shape inner(input.dims().subspan(split));
  return emit_reshape(node, Shape{outer.elements(), inner.elements()});
}

// True where an axis of `axes` says so; throws Error on an axis given twice.
std::vector<bool> mark_axes(std::span<const std::int64_t> axes, int rank, const char* what) {
  std::vector<bool> marked(static_cast<std::size_t>(rank), false);
  for (const std::int64_t axis : axes) {
    const auto index = static_cast<std::size_t>(normalize_axis(axis, rank, what));
    if (marked[index]) fail("{}: axis {} is given twice", what, axis);
    marked[index] = true;
  }
  return marked;
}

std::vector<ValueId> squeeze(NodeContext& node, const std::optional<std::vector<std::int64_t>>& axes) {
  const Shape& input = node.input_shape(0);
  const std::vector<bool> dropped =
      mark_axes(axes.value_or(std::vector<std::int64_t>{}), input.rank(), "Squeeze");
  std::vector<std::int64_t> dims;
  for (int d = 0; d < input.rank(); ++d) {
    const bool drop = axes ? dropped[static_cast<std::size_t>(d)] : input[d] == 1;
    if (drop && input[d] != 1) fail("dimension {} of {} cannot be dropped: it is not 1", d, input.str());
    if (!drop) dims.push_back(input[d]);
  }
  return emit_reshape(node, shape_from_onnx(dims));
}

std::vector<ValueId> unsqueeze(NodeContext& node, const std::vector<std::int64_t>& axes) {
  const Shape& input = node.input_shape(0);
  const std::size_t rank = static_cast<std::size_t>(input.rank()) + axes.size();
  if (rank > static_cast<std::size_t>(kMaxRank)) {
    fail_unsupported("{} dimensions; at most {} are supported", rank, kMaxRank);
  }
  const std::vector<bool> added = mark_axes(axes, static_cast<int>(rank), "Unsqueeze");
  std::vector<std::int64_t> dims;
  int next = 0;
  for (const bool is_new : added) dims.push_back(is_new ? 1 : input[next++]);
  return emit_reshape(node, shape_from_onnx(dims));
}

std::vector<ValueId> convert_squeeze_of_attribute(NodeContext& node) {
  return squeeze(node, node.attributes().integers("axes"));
}

std::vector<ValueId> convert_squeeze_of_input(NodeContext& node) {
  return squeeze(node, node.optional_integers(1, "axes"));
}

std::vector<ValueId> convert_unsqueeze_of_attribute(NodeContext& node) {
  const auto axes = node.attributes().integers("axes");
  if (!axes) fail("attribute 'axes' is missing");
  return unsqueeze(node, *axes);
}

std::vector<ValueId> convert_unsqueeze_of_input(NodeContext& node) {
  return unsqueeze(node, node.constant_integers(1, "axes"));
}

std::vector<ValueId> convert_identity(NodeContext& node) {
  return {node.input(0)};
}

// At inference nothing is dropped, so the mask is all true.
std::vector<ValueId> convert_dropout(NodeContext& node) {
  node.attributes().ignore({"ratio", "seed"});
  // Before opset 7 a file had to ask for inference.
  if (node.opset() < 7 && !node.attributes().flag("is_test", false)) fail_unsupported("training mode");
  if (node.has_input(2) && node.constant_number(2, "training_mode") != 0) fail_unsupported("training mode");
  if (!node.wants_output(1)) return {node.input(0)};
  if (node.opset() < 10) fail_unsupported("the mask output before opset 10");
  const ValueId mask = node.emit(std::make_shared<Expand>(ExpandAttributes{node.input_shape(0)}),
                                 {node.add_constant(Tensor::scalar(true), "true")}, "mask");
  return {node.input(0), mask};
}

constexpr Operator kReshapeOperators[] = {
    {"Dropout", 6, 11, 1, 1, convert_dropout},
    {"Dropout", 12, kLastOpset, 1, 3, convert_dropout},
    {"Flatten", 1, kLastOpset, 1, 1, convert_flatten},
    {"Identity", 1, kLastOpset, 1, 1, convert_identity, true},
    {"Reshape", 5, kLastOpset, 2, 2, convert_reshape},
    {"Squeeze", 1, 12, 1, 1, convert_squeeze_of_attribute},
    {"Squeeze", 13, kLastOpset, 1, 2, convert_squeeze_of_input},
    {"Unsqueeze", 1, 12, 1, 1, convert_unsqueeze_of_attribute},
    {"Unsqueeze", 13, kLastOpset, 2, 2, convert_unsqueeze_of_input},
};

}  // namespace

std::span<const Operator> reshape_operators() {
  return kReshapeOperators;
}

}  // namespace pipit::internal::onnx
