#include "layers/cuda/conv/conv_depthwise_problem.h"

#include <fmt/format.h>

#include <limits>

#include "layers/common/layer_kernel.h"

namespace pipit::cuda {

namespace {

Refusal refuse_window(const Window& w) {
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (w.kernel[0] != w.kernel[1] || w.kernel[0] < 3 || w.kernel[0] > 7 || w.kernel[0] % 2 == 0)
    return fmt::format("the window is {}x{}; 3x3, 5x5 and 7x7 are handled", w.kernel[0], w.kernel[1]);
  if (w.stride[0] != w.stride[1] || w.stride[0] > 2)
    return fmt::format("the strides are {} and {}; 1 and 1, 2 and 2 are handled", w.stride[0], w.stride[1]);
  if (w.dilation[0] != 1 || w.dilation[1] != 1) return "dilation is not handled";
  return std::nullopt;
}

}  // namespace

Refusal refuse_sliding_depthwise(const NodeSpec& spec, const ConvAttributes& attributes) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (y.elements() == 0) return "empty tensors are not handled";
  const std::int64_t channels = x.shape[1];
  if (attributes.groups != channels || y.shape[1] != channels)
    return "not a depthwise convolution with one output per channel";
  if (channels % 4 != 0) return fmt::format("{} channels; multiples of 4 are handled", channels);
  if (Refusal reason = refuse_window(w)) return reason;
  if (spec.has_input(3)) return "a residual is not added";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  // Positions and threads, of two results at least, are counted in 32 bits.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (x.elements() / x.shape[0] > kLimit || y.elements() > kLimit * 2 || w.pad_begin[0] > kLimit / 4 ||
      w.pad_begin[1] > kLimit / 4)
    return "the tensors are too large for 32-bit offsets";
  return std::nullopt;
}

DepthwiseGeometry depthwise_geometry(const NodeSpec& spec, const Window& window) {
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  DepthwiseGeometry g;
  g.batch = narrow(x[0]), g.channels = narrow(x[1]);
  g.in_h = narrow(x[2]), g.in_w = narrow(x[3]);
  g.out_h = narrow(y[2]), g.out_w = narrow(y[3]);
  g.pad_h = narrow(window.pad_begin[0]), g.pad_w = narrow(window.pad_begin[1]);
  g.window = narrow(window.kernel[0]), g.stride = narrow(window.stride[0]);
  return g;
}

}  // namespace pipit::cuda
