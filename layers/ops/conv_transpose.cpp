#include "layers/ops/conv_transpose.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxExtent = (std::int64_t{1} << 31) - 1;

// Positions that the taps of all inputs reach, before pads are taken off.
std::int64_t reach(const Window& window, int axis, std::int64_t input) {
  const std::int64_t stride = window.stride[static_cast<std::size_t>(axis)];
  if (input > kMaxExtent || window.span(axis) > kMaxExtent)
    fail("ConvTranspose: a window of {} over {} positions is too large", window.str(), input);
  return (input - 1) * stride + window.span(axis);
}

}  // namespace

ConvTranspose::ConvTranspose(ConvTransposeAttributes attributes) : LayerOf(attributes) {
  check_window(attributes_.window, "ConvTranspose");
  if (attributes_.groups < 1) fail("ConvTranspose: {} groups; expected at least 1", attributes_.groups);
  for (const std::int64_t padding : attributes_.output_padding) {
    if (padding < 0 || padding > kMaxExtent)
      fail("ConvTranspose: output padding {}; expected 0 to {}", padding, kMaxExtent);
  }
}

std::vector<TensorDesc> ConvTranspose::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 1);
  const TensorDesc& x = *inputs[0];
  const TensorDesc& weights = *inputs[1];
  const Window& window = attributes_.window;
  check_float(x, kType, "x");
  const int rank = window.rank + 2;
  if (x.shape.rank() != rank || weights.shape.rank() != rank) {
    fail("ConvTranspose: x is {} and weights are {}; a kernel of {} needs {} dimensions of both",
         x.shape.str(), weights.shape.str(), window.str(), rank);
  }
  const std::int64_t groups = attributes_.groups;
  const std::int64_t channels = x.shape[1];
  const std::int64_t outputs_per_group = weights.shape[1];
  if (channels < 1 || channels % groups != 0 || outputs_per_group < 1 ||
      outputs_per_group > kMaxExtent / groups) {
    fail("ConvTranspose: {} input and {} output channels per group do not make {} groups", channels,
         outputs_per_group, groups);
  }
  std::array<std::int64_t, kMaxSpatial + 2> expected{channels, outputs_per_group};
  std::copy_n(window.kernel.begin(), window.rank, expected.begin() + 2);
  const auto used = static_cast<std::size_t>(rank);
  check_operand(weights, Shape(std::span<const std::int64_t>(expected.data(), used)), x.dtype, kType,
                "weights");
  if (const TensorDesc* bias = optional_input(inputs, 2)) {
    check_operand(*bias, Shape{outputs_per_group * groups}, x.dtype, kType, "bias");
  }
  std::array<std::int64_t, kMaxSpatial + 2> dims{x.shape[0], outputs_per_group * groups};
  for (int axis = 0; axis < window.rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    dims[a + 2] = reach(window, axis, x.shape[axis + 2]) + attributes_.output_padding[a] -
                  window.pad_begin[a] - window.pad_end[a];
    if (x.shape[axis + 2] < 1 || dims[a + 2] < 1) {
      fail("ConvTranspose: a window of {} leaves {} positions of {} along spatial dimension {}", window.str(),
           dims[a + 2], x.shape[axis + 2], axis);
    }
  }
  return {{Shape(std::span<const std::int64_t>(dims.data(), used)), x.dtype}};
}

bool ConvTranspose::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

Work ConvTranspose::work(std::span<const TensorDesc* const> inputs,
                         std::span<const TensorDesc> /*outputs*/) const {
  const Shape& weights = inputs[1]->shape;
  return {saturating_product(inputs[0]->shape.elements(), weights.elements() / weights[0])};
}

std::string ConvTranspose::summary() const {
  std::string text = attributes_.window.str();
  const auto& more = attributes_.output_padding;
  if (std::any_of(more.begin(), more.end(), [](std::int64_t v) { return v != 0; }))
    text += fmt::format(" op{}", fmt::join(more.begin(), more.begin() + attributes_.window.rank, ","));
  if (attributes_.groups != 1) text += fmt::format(" g{}", attributes_.groups);
  return text + clamp_summary(attributes_.activation);
}

ConvTransposeAttributes with_output_shape(ConvTransposeAttributes attributes,
                                          std::span<const std::int64_t> input_spatial,
                                          std::span<const std::int64_t> output, AutoPad auto_pad) {
  Window& window = attributes.window;
  for (std::size_t axis = 0; axis < output.size(); ++axis) {
    if (output[axis] < 1 || output[axis] > kMaxExtent)
      fail("ConvTranspose: an output of {} positions; expected 1 to {}", output[axis], kMaxExtent);
    const std::int64_t full = reach(window, static_cast<int>(axis), input_spatial[axis]);
    const std::int64_t pads = full + attributes.output_padding[axis] - output[axis];
    const std::int64_t total = std::max<std::int64_t>(pads, 0);
    const std::int64_t more = total - total / 2;
    window.pad_begin[axis] = auto_pad == AutoPad::same_upper ? total / 2 : more;
    window.pad_end[axis] = total - window.pad_begin[axis];
    if (pads < 0) attributes.output_padding[axis] -= pads;
  }
  return attributes;
}

}  // namespace pipit::internal
