#include "layers/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

Conv::Conv(ConvAttributes attributes) : LayerOf(attributes) {
  check_window(attributes_.window, "Conv");
  if (attributes_.groups < 1) fail("Conv: {} groups; expected at least 1", attributes_.groups);
}

std::vector<TensorDesc> Conv::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2, 2);
  const TensorDesc& x = *inputs[0];
  const TensorDesc& weights = *inputs[1];
  const Window& window = attributes_.window;
  check_float(x, kType, "x");
  if (x.shape.rank() != window.rank + 2) {
    fail("Conv: x is {}; a kernel of {} needs {} dimensions", x.shape.str(), window.str(), window.rank + 2);
  }
  const std::int64_t groups = attributes_.groups;
  const std::int64_t channels = x.shape[1];
  const std::int64_t outputs = weights.shape.rank() > 0 ? weights.shape[0] : 0;
  if (channels < 1 || outputs < 1 || channels % groups != 0 || outputs % groups != 0) {
    fail("Conv: {} input and {} output channels cannot be split into {} groups", channels, outputs, groups);
  }
  std::array<std::int64_t, kMaxSpatial + 2> expected{outputs, channels / groups};
  std::copy_n(window.kernel.begin(), window.rank, expected.begin() + 2);
  check_operand(
      weights,
      Shape(std::span<const std::int64_t>(expected.data(), static_cast<std::size_t>(window.rank + 2))),
      x.dtype, kType, "weights");
  if (const TensorDesc* bias = optional_input(inputs, 2)) {
    check_operand(*bias, Shape{outputs}, x.dtype, kType, "bias");
  }
  const TensorDesc y{window_output_shape(window, x.shape, outputs), x.dtype, Layout::row_major};
  if (const TensorDesc* residual = optional_input(inputs, 3)) {
    check_operand(*residual, y.shape, x.dtype, kType, "residual");
  }
  return {y};
}

bool Conv::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 3});
}

Work Conv::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  const Shape& weights = inputs[1]->shape;
  return {saturating_product(outputs[0].elements(), weights.elements() / weights[0]),
          window_read_share(attributes_.window, inputs[0]->shape)};
}

std::string Conv::summary() const {
  std::string text = attributes_.window.str();
  if (attributes_.groups != 1) text += fmt::format(" g{}", attributes_.groups);
  return text + clamp_summary(attributes_.activation);
}

}  // namespace pipit::internal
