// BatchNormalization, LayerNormalization, InstanceNormalization, GroupNormalization, LRN and the softmaxes.
#include "layers/ops/normalization.h"

#include "layers/ops/binary.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/softmax.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

bool trains(NodeContext& node) {
  // Before opset 7 a file had to ask for inference.
  if (node.opset() < 7) return !node.attributes().flag("is_test", false);
  return node.attributes().flag("training_mode", false);
}

// In training mode the statistics are those of the input. On constants that is weight standardization, where
// the input is [1, C, ...], so that they are the statistics of an instance normalization.
std::vector<ValueId> convert_batch_norm(NodeContext& node) {
  AttributeReader& attributes = node.attributes();
  if (!attributes.flag("spatial", true))
    fail_unsupported("statistics per position (attribute 'spatial' = 0)");
  attributes.ignore({"momentum"});
  const float epsilon = attributes.number("epsilon", 1e-5F);
  if (trains(node)) {
    const Shape& shape = node.input_shape(0);
    if (!node.is_constant(0) || shape.rank() < 3 || shape[0] != 1) {
      fail_unsupported("training mode (export the model for inference)");
    }
    return {node.emit<InstanceNorm>({node.input(0), node.input(1), node.input(2)},
                                    InstanceNormAttributes{epsilon})};
  }
  return {node.emit<BatchNorm>({node.input(0), node.input(1), node.input(2), node.input(3), node.input(4)},
                               BatchNormAttributes{epsilon})};
}

// stash_type is the precision of the statistics; ours is at least f32.
void check_stash_type(NodeContext& node) {
  const std::int64_t type = node.attributes().integer("stash_type", 1);
  if (type != 1) fail_unsupported("attribute 'stash_type' is {}; 1 (f32) is supported", type);
}

std::vector<ValueId> convert_layer_norm(NodeContext& node) {
  check_stash_type(node);
  LayerNormAttributes attributes;
  attributes.axis = node.attributes().integer("axis", -1);
  attributes.epsilon = node.attributes().number("epsilon", 1e-5F);
  attributes.outputs = node.wants_output(1) || node.wants_output(2) ? 3 : 1;
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  if (node.has_input(2)) inputs.push_back(node.input(2));
  return node.emit_all(std::make_shared<LayerNorm>(attributes), std::move(inputs));
}

// x / sqrt(mean of squares + epsilon) * scale. ONNX Runtime's optimizer writes SimplifiedLayerNormalization, which may
// also give 1 / root.
std::vector<ValueId> convert_rms_norm(NodeContext& node) {
  check_stash_type(node);
  if (node.wants_output(1)) fail_unsupported("statistics as outputs");
  Steps steps(node);
  const std::int64_t axis = node.attributes().integer("axis", -1);
  const float epsilon = node.attributes().number("epsilon", 1e-5F);
  return {root_mean_square_normalized(steps, node.input(0), node.input(1), axis, epsilon)};
}

// x / norm along an axis, 0 where the norm is.
std::vector<ValueId> convert_lp_norm(NodeContext& node) {
  Steps steps(node);
  const std::int64_t p = node.attributes().integer("p", 2);
  if (p != 1 && p != 2) fail("attribute 'p' is {}, expected 1 or 2", p);
  const std::int64_t axis = node.attributes().integer("axis", -1);
  const ValueId norm = steps.reduce(p == 1 ? ReduceKind::l1 : ReduceKind::l2, node.input(0), {axis});
  const ValueId zero = steps.binary(BinaryKind::equal, norm, steps.number(steps.dtype(norm), 0));
  const ValueId divisor = steps.where(zero, steps.number(steps.dtype(norm), 1), norm);
  return {node.emit<Binary>({node.input(0), divisor}, BinaryAttributes{BinaryKind::div})};
}

// (x - mean) / (standard deviation + 1e-9)
std::vector<ValueId> convert_mean_variance_norm(NodeContext& node) {
  Steps steps(node);
  const auto axes = node.attributes().integers("axes").value_or(std::vector<std::int64_t>{0, 2, 3});
  const ValueId x = node.input(0);
  const ValueId centred = steps.binary(BinaryKind::sub, x, steps.reduce(ReduceKind::mean, x, axes));
  const ValueId variance =
      steps.reduce(ReduceKind::mean, steps.binary(BinaryKind::mul, centred, centred), axes);
  const ValueId deviation = steps.binary(BinaryKind::add, steps.unary(variance, {UnaryKind::sqrt}),
                                         steps.number(steps.dtype(x), 1e-9));
  return {node.emit<Binary>({centred, deviation}, BinaryAttributes{BinaryKind::div})};
}

std::vector<ValueId> convert_instance_norm(NodeContext& node) {
  return {node.emit<InstanceNorm>({node.input(0), node.input(1), node.input(2)},
                                  InstanceNormAttributes{node.attributes().number("epsilon", 1e-5F)})};
}

ValueId filled(NodeContext& node, std::int64_t count, float value, const char* part) {
  Tensor tensor = node.allocate(TensorDesc{Shape{count}});
  std::ranges::fill(tensor.values<float>(), value);
  return node.add_constant(std::move(tensor), part);
}

ValueId reshaped(NodeContext& node, ValueId x, const Shape& shape, const char* part) {
  return node.emit(std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, part);
}

// A group of channels is one channel of an instance normalization over [N, groups, the rest]. Opset 18 scales
// whole groups, 21 single channels.
std::vector<ValueId> convert_group_norm(NodeContext& node) {
  check_stash_type(node);
  const ValueId x = node.input(0);
  const Shape shape = node.input_shape(0);
  const std::int64_t groups = node.attributes().required_integer("num_groups");
  const InstanceNormAttributes attributes{node.attributes().number("epsilon", 1e-5F)};
  if (shape.rank() < 2) fail("input {} has no channels", shape.str());
  const std::int64_t channels = shape[1];
  if (groups < 1 || channels % groups != 0) fail("{} groups of {} channels", groups, channels);
  const bool per_channel = node.opset() >= 21;
  const Shape parameters{per_channel ? channels : groups};
  for (const int i : {1, 2}) {
    if (!(node.input_shape(i) == parameters)) {
      fail("{} is {}, expected {}", i == 1 ? "scale" : "bias", node.input_shape(i).str(), parameters.str());
    }
  }
  if (shape.elements() == 0) fail_unsupported("an empty input {}", shape.str());
  const Shape grouped{shape[0], groups, shape.elements() / shape[0] / groups};
  const ValueId scale = per_channel ? filled(node, groups, 1, "one") : node.input(1);
  const ValueId bias = per_channel ? filled(node, groups, 0, "zero") : node.input(2);
  ValueId y = reshaped(node, x, grouped, "grouped");
  y = node.emit(std::make_shared<InstanceNorm>(attributes), {y, scale, bias},
                per_channel ? "normalized" : nullptr);
  y = reshaped(node, y, shape, "ungrouped");
  if (!per_channel) return {y};
  std::vector<std::int64_t> column(static_cast<std::size_t>(shape.rank()) - 1, 1);
  column[0] = channels;
  y = node.emit(std::make_shared<Binary>(BinaryAttributes{BinaryKind::mul}),
                {y, reshaped(node, node.input(1), Shape(column), "scale")}, "scaled");
  return {node.emit<Binary>({y, reshaped(node, node.input(2), Shape(column), "bias")},
                            BinaryAttributes{BinaryKind::add})};
}

std::vector<ValueId> convert_lrn(NodeContext& node) {
  LrnAttributes attributes;
  attributes.alpha = node.attributes().number("alpha", 1e-4F);
  attributes.beta = node.attributes().number("beta", 0.75F);
  attributes.bias = node.attributes().number("bias", 1);
  attributes.size = node.attributes().required_integer("size");
  return {node.emit<Lrn>({node.input(0)}, attributes)};
}

template <bool log>
std::vector<ValueId> convert_softmax(NodeContext& node) {
  const bool flatten = node.opset() < 13;
  SoftmaxAttributes attributes{.log = log, .flatten_from_axis = flatten};
  attributes.axis = node.attributes().integer("axis", flatten ? 1 : -1);
  return {node.emit<Softmax>({node.input(0)}, attributes)};
}

constexpr Operator kNormalizationOperators[] = {
    {"BatchNormalization", 6, kLastOpset, 5, 5, convert_batch_norm},
    {"GroupNormalization", 18, kLastOpset, 3, 3, convert_group_norm},
    {"InstanceNormalization", 6, kLastOpset, 3, 3, convert_instance_norm},
    {"LRN", 1, kLastOpset, 1, 1, convert_lrn},
    {"LayerNormalization", 17, kLastOpset, 2, 3, convert_layer_norm},
    {"LpNormalization", 1, kLastOpset, 1, 1, convert_lp_norm},
    {"LogSoftmax", 1, kLastOpset, 1, 1, convert_softmax<true>},
    {"MeanVarianceNormalization", 9, kLastOpset, 1, 1, convert_mean_variance_norm},
    {"RMSNormalization", 23, kLastOpset, 2, 2, convert_rms_norm},
    {"SimplifiedLayerNormalization", 1, kLastOpset, 2, 2, convert_rms_norm},
    {"Softmax", 1, kLastOpset, 1, 1, convert_softmax<false>},
};

}  // namespace

std::span<const Operator> normalization_operators() {
  return kNormalizationOperators;
}

}  // namespace pipit::internal::onnx
