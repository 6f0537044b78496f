// What functions of elements do with channels.
#include <algorithm>
#include <cmath>

#include "layers/ops/binary.h"
#include "layers/ops/unary.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_walk.h"

namespace pipit::internal {

namespace {

double binary_value(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::add:
      return a + b;
    case BinaryKind::sub:
      return a - b;
    case BinaryKind::mul:
      return a * b;
    case BinaryKind::div:
      return a / b;
    case BinaryKind::min:
      return std::min(a, b);
    case BinaryKind::max:
      return std::max(a, b);
    case BinaryKind::pow:
      return std::pow(a, b);
    case BinaryKind::prelu:
      return a < 0 ? a * b : a;
    default:
      return ChannelWalk::kVaries;
  }
}

bool is_sum(BinaryKind kind) {
  return kind == BinaryKind::add || kind == BinaryKind::sub;
}

// Where a dimension of an operand is in the result, and the reverse (negative: nowhere).
int in_result(int axis, const Shape& operand, const Shape& result) {
  return axis + result.rank() - operand.rank();
}
std::int64_t extent_at(const Shape& operand, const Shape& result, int axis) {
  const int own = axis - (result.rank() - operand.rank());
  return own < 0 ? 1 : operand[own];
}

// What a constant is at each channel of `x`; ChannelWalk::kVaries where it is not one number there.
std::vector<double> constant_rests(const Tensor& constant, const ValueChannels& x, int axis,
                                   const Shape& result) {
  const std::int64_t extent = extent_at(constant.shape(), result, axis);
  const int own = axis - (result.rank() - constant.shape().rank());
  std::int64_t after = 1;
  for (int d = std::max(own, 0) + (own < 0 ? 0 : 1); d < constant.shape().rank(); ++d)
    after *= constant.shape()[d];
  const Tensor plain = to_layout(constant.view(), Layout::row_major);
  const std::span<const float> values = plain.values<float>();
  std::vector<double> rests(x.size(), ChannelWalk::kVaries);
  std::vector<bool> seen(x.size(), false);
  const auto meet = [&](std::size_t i, double value) {
    if (!seen[i]) rests[i] = value;
    if (rests[i] != value) rests[i] = ChannelWalk::kVaries;
    seen[i] = true;
  };
  if (extent == 1) {
    const bool one = std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
    if (one && !values.empty()) rests.assign(x.size(), static_cast<double>(values[0]));
    return rests;
  }
  for (std::size_t v = 0; v < values.size(); ++v) {
    const std::int64_t position = static_cast<std::int64_t>(v) / after % extent;
    meet(x.entry(position), static_cast<double>(values[v]));
  }
  return rests;
}

void tie_with_constant(ChannelWalk& walk, const Node& node, const BinaryAttributes& attributes,
                       bool data_first) {
  const ValueId data = node.inputs[data_first ? 0 : 1];
  const Tensor& constant = *walk.constant(node.inputs[data_first ? 1 : 0]);
  const ValueChannels& x = walk.of(data);
  if (!x.known()) return;
  const Shape& y = walk.shape(node.outputs[0]);
  const int axis = in_result(x.axis, walk.shape(data), y);
  if (y[axis] != walk.shape(data)[x.axis]) return walk.keep_all(x, "one channel is spread over several");
  const std::vector<double> constants = constant_rests(constant, x, axis, y);
  const bool own = extent_at(constant.shape(), y, axis) > 1;
  const auto numbers = constant.values<float>();
  const bool finite = std::all_of(numbers.begin(), numbers.end(), [](float v) { return std::isfinite(v); });
  const bool no_zero = std::find(numbers.begin(), numbers.end(), 0.0F) == numbers.end();
  walk.set(node.outputs[0], walk.mapped(x, axis, [&](std::size_t i, double rest) {
    // What is added to a channel of its own goes with it.
    const double k = own && is_sum(attributes.kind) ? 0 : constants[i];
    double value =
        data_first ? binary_value(attributes.kind, rest, k) : binary_value(attributes.kind, k, rest);
    if (std::isnan(k)) value = ChannelWalk::kVaries;  // std::max and pow may lose it
    const bool times = attributes.kind == BinaryKind::mul && finite;
    const bool over = attributes.kind == BinaryKind::div && data_first && no_zero && finite;
    const bool slope = attributes.kind == BinaryKind::prelu && data_first;
    if (rest == 0 && (times || over || slope)) value = 0;
    return attributes.activation(value);
  }));
}

// `x` with an operand that is the same for all channels, or has others that stay.
void tie_with_fixed(ChannelWalk& walk, const Node& node, const BinaryAttributes& attributes, std::size_t data,
                    std::int64_t extent) {
  const ValueChannels& x = walk.of(node.inputs[data]);
  const Shape& y = walk.shape(node.outputs[0]);
  const int axis = in_result(x.axis, walk.shape(node.inputs[data]), y);
  if (extent != 1) return walk.keep_all(x, "its other operand's channels stay");
  if (y[axis] != walk.shape(node.inputs[data])[x.axis] || y[axis] == 1)
    return walk.keep_all(x, "one channel is spread over several");
  const bool product =
      attributes.kind == BinaryKind::mul ||
      (data == 0 && (attributes.kind == BinaryKind::div || attributes.kind == BinaryKind::prelu));
  walk.set(node.outputs[0], walk.mapped(x, axis, [&](std::size_t, double rest) {
    return product && rest == 0 ? attributes.activation(0.0) : ChannelWalk::kVaries;
  }));
}

void tie_two(ChannelWalk& walk, const Node& node, const BinaryAttributes& attributes) {
  const ValueChannels& a = walk.of(node.inputs[0]);
  const ValueChannels& b = walk.of(node.inputs[1]);
  const Shape& shape_a = walk.shape(node.inputs[0]);
  const Shape& shape_b = walk.shape(node.inputs[1]);
  const Shape& y = walk.shape(node.outputs[0]);
  if (!a.known() && !b.known()) return;
  const int axis_a = a.known() ? in_result(a.axis, shape_a, y) : -1;
  const int axis_b = b.known() ? in_result(b.axis, shape_b, y) : -1;
  const int axis = a.known() ? axis_a : axis_b;
  const std::int64_t extent_a = extent_at(shape_a, y, axis);
  const std::int64_t extent_b = extent_at(shape_b, y, axis);
  if (!b.known()) return tie_with_fixed(walk, node, attributes, 0, extent_b);
  if (!a.known()) return tie_with_fixed(walk, node, attributes, 1, extent_a);
  if (axis_a == axis_b && extent_a != extent_b) {  // one of them is a single channel
    walk.keep_all(extent_a == 1 ? a : b, "one channel is spread over several");
    return extent_a == 1 ? tie_with_fixed(walk, node, attributes, 1, 1)
                         : tie_with_fixed(walk, node, attributes, 0, 1);
  }
  if (axis_a != axis_b || a.inner != b.inner || a.size() != b.size())
    return walk.keep_inputs(node, "its operands have different channels");
  walk.tie_all(a, b);
  walk.set(node.outputs[0], walk.mapped(a, axis, [&](std::size_t i, double rest) {
    return attributes.activation(binary_value(attributes.kind, rest, b.rest_of(i)));
  }));
}

}  // namespace

bool tie_elementwise_layer(ChannelWalk& walk, const Node& node) {
  if (walk.graph().value(node.outputs[0]).desc.dtype != DType::f32) return false;
  if (const auto* unary = layer_if<Unary>(node)) {
    const ValueChannels& x = walk.of(node.inputs[0]);
    if (!x.known()) return true;
    walk.set(node.outputs[0], walk.mapped(x, x.axis, [&](std::size_t, double rest) {
      return unary_value(unary->attributes(), rest);
    }));
    return true;
  }
  const auto* binary = layer_if<Binary>(node);
  if (binary == nullptr) return false;
  if (walk.constant(node.inputs[1]) != nullptr) {
    tie_with_constant(walk, node, binary->attributes(), true);
  } else if (walk.constant(node.inputs[0]) != nullptr) {
    tie_with_constant(walk, node, binary->attributes(), false);
  } else {
    tie_two(walk, node, binary->attributes());
  }
  return true;
}

}  // namespace pipit::internal
