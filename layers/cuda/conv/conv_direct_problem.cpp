#include "layers/cuda/conv/conv_direct_problem.h"

#include <limits>

#include "layers/common/image.h"

namespace pipit::cuda {

Refusal refuse_wide_window(const NodeSpec& spec, const Window& window) {
  // Coordinates are 32-bit and one launch has less than 2^31 blocks of 128 threads.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (spec.outputs[0].elements() > kLimit * 64) return "the output is too large for one launch";
  for (int axis = 0; axis < window.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (spec.inputs[0]->shape[axis + 2] + window.span(axis) + window.pad_begin[i] + window.pad_end[i] >
        kLimit / 8)
      return "the window is too large for 32-bit coordinates";
  }
  return std::nullopt;
}

namespace {

ImageStrides strides_of(const TensorDesc& desc) {
  const Image image(desc);
  return {image.batch_stride, image.channel_stride, image.stride[0], image.stride[1], image.stride[2]};
}

}  // namespace

ImageStrides channels_last_strides(TensorDesc desc) {
  desc.layout = Layout::channels_last;
  return strides_of(desc);
}

DirectConvArgs direct_conv_geometry(const NodeSpec& spec, const ConvAttributes& attributes) {
  const Window window = as_3d(attributes.window);
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  DirectConvArgs a;
  a.x_strides = strides_of(*spec.inputs[0]);
  a.y_strides = strides_of(spec.outputs[0]);
  if (spec.has_input(3)) a.residual_strides = strides_of(*spec.inputs[3]);
  a.batch = x.batch;
  a.groups = static_cast<int>(attributes.groups);
  a.group_in = static_cast<int>(x.channels / attributes.groups);
  a.group_out = static_cast<int>(y.channels / attributes.groups);
  for (std::size_t i = 0; i < 3; ++i) {
    a.in[i] = static_cast<int>(x.extent[i]);
    a.out[i] = static_cast<int>(y.extent[i]);
    a.kernel[i] = static_cast<int>(window.kernel[i]);
    a.stride[i] = static_cast<int>(window.stride[i]);
    a.dilation[i] = static_cast<int>(window.dilation[i]);
    a.pad[i] = static_cast<int>(window.pad_begin[i]);
  }
  return a;
}

}  // namespace pipit::cuda
