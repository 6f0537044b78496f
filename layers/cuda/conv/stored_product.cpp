#include "layers/cuda/conv/stored_product.h"

#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"

namespace pipit::internal::cuda {

StoredProduct::StoredProduct(const NodeSpec& spec) {
  const Shape& x = spec.inputs[0]->shape;
  outputs = spec.inputs[1]->shape[0];
  rows = outputs > 0 ? spec.outputs[0].shape.elements() / outputs : 0;
  if (spec.layer.type() == WLinear::kType) {
    const WLinearAttributes& linear = layer_as<WLinear>(spec.layer).attributes();
    format = linear.format, activation = linear.activation;
    depth = x[x.rank() - 1];
    return;
  }
  const WConvAttributes& attributes = layer_as<WConv>(spec.layer).attributes();
  format = attributes.format, activation = attributes.conv.activation;
  depth = x[1];
  const Window& given = attributes.conv.window;
  Window plain;
  plain.rank = given.rank;
  plain.dilation = given.dilation;  // of one tap: without meaning
  plain.ceil_mode = given.ceil_mode;
  if (!(given == plain)) window = given;
}

namespace {

Refusal refuse_layouts(const NodeSpec& spec) {
  if (spec.layer.type() == WLinear::kType) return refuse_unless_row_major(spec);
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "x and y must be channels_last";
  if (spec.has_input(kStoredResidual) && !is_channels_last(*spec.inputs[kStoredResidual]))
    return "the residual must be channels_last";
  return std::nullopt;
}

}  // namespace

Refusal refuse_stored_product(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (x.dtype != DType::f16 || (y.dtype != DType::f16 && y.dtype != DType::f32))
    return "only x of f16 and y of f16 or f32 are handled";
  if (spec.has_input(kStoredResidual) && spec.inputs[kStoredResidual]->dtype != DType::f16)
    return "the residual is not f16";
  if (spec.constant(1) == nullptr || spec.constant(2) == nullptr) return "weights are computed at run time";
  if (spec.has_input(kStoredBias) && spec.constant(kStoredBias) == nullptr)
    return "the bias is computed at run time";
  if (Refusal reason = refuse_layouts(spec)) return reason;
  if (x.elements() == 0 || y.elements() == 0) return "empty tensors are not handled";
  return std::nullopt;
}

std::vector<int> pixels_of(const NodeSpec& spec, const Window& given) {
  const Window window = as_3d(given);
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  std::vector<int> pixels;
  pixels.reserve(static_cast<std::size_t>(y.positions()));
  for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t w) {
    const std::array<std::int64_t, 3> at{d, h, w};
    std::int64_t pixel = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const TapRange taps = taps_inside(window, axis, at[a], x.extent[a]);
      pixel = taps.count() > 0 && pixel >= 0 ? pixel + taps.start * x.stride[a] : -1;
    }
    pixels.push_back(static_cast<int>(pixel));
  });
  return pixels;
}

}  // namespace pipit::internal::cuda
