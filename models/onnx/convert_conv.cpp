// Conv.
#include "layers/conv.h"

#include "models/onnx/operators.h"
#include "models/onnx/window_attributes.h"

namespace pipit::onnx {

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

constexpr Operator kOperators[] = {{"Conv", 1, kLastOpset, 2, 3, convert_conv}};

}  // namespace

std::span<const Operator> conv_operators() {
  return kOperators;
}

}  // namespace pipit::onnx
