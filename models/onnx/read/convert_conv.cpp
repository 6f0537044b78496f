// Conv and ConvTranspose.
#include "layers/ops/conv.h"

#include "layers/ops/conv_transpose.h"

#include "layers/ops/operands.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> convert_conv(NodeContext& node) {
  const Shape& weights = node.input_shape(1);
  if (weights.rank() < 3) fail("weights {}: expected [output, input / group, kernel...]", weights.str());
  ConvAttributes attributes;
  attributes.window = read_window(node, weights.dims().subspan(2), "Conv");
  attributes.groups = node.attributes().integer("group", 1);
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (node.has_input(2)) inputs.push_back(node.input(2));
  return {node.emit<Conv>(std::move(inputs), attributes)};
}

// output_shape takes the place of pads, and may begin with batch and channels.
std::optional<std::vector<std::int64_t>> read_output_shape(NodeContext& node, std::size_t rank) {
  auto shape = node.attributes().integers("output_shape");
  if (!shape) return std::nullopt;
  if (shape->size() == rank + 2) shape->erase(shape->begin(), shape->begin() + 2);
  if (shape->size() != rank) {
    fail("attribute 'output_shape' has {} numbers, expected {} for input {}", shape->size(), rank,
         node.input_shape(0).str());
  }
  return shape;
}

std::vector<ValueId> convert_conv_transpose(NodeContext& node) {
  const Shape& weights = node.input_shape(1);
  if (weights.rank() < 3) fail("weights {}: expected [input, output / group, kernel...]", weights.str());
  const auto [window, auto_pad] = read_unresolved_window(node, weights.dims().subspan(2), "ConvTranspose");
  const auto rank = static_cast<std::size_t>(window.rank);
  const std::span<const std::int64_t> spatial = node.input_shape(0).dims().subspan(2);
  ConvTransposeAttributes attributes;
  attributes.window = window;
  attributes.groups = node.attributes().integer("group", 1);
  std::ranges::copy(read_list(node, "output_padding", rank, 0), attributes.output_padding.begin());
  if (const auto given = read_output_shape(node, rank)) {
    attributes = with_output_shape(attributes, spatial, *given, auto_pad);
  } else if (auto_pad == AutoPad::same_upper || auto_pad == AutoPad::same_lower) {
    std::vector<std::int64_t> output;
    for (std::size_t axis = 0; axis < rank; ++axis)
      output.push_back(checked_mul(spatial[axis], window.stride[axis], "ConvTranspose"));
    attributes = with_output_shape(attributes, spatial, output, auto_pad);
  }
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (node.has_input(2)) inputs.push_back(node.input(2));
  return {node.emit<ConvTranspose>(std::move(inputs), attributes)};
}

constexpr Operator kConvOperators[] = {{"Conv", 1, kLastOpset, 2, 3, convert_conv},
                                       {"ConvTranspose", 1, kLastOpset, 2, 3, convert_conv_transpose}};

}  // namespace

std::span<const Operator> conv_operators() {
  return kConvOperators;
}

}  // namespace pipit::internal::onnx
