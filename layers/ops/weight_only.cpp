#include "layers/ops/weight_only.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

void check_format(const WeightFormat& format, std::string_view layer) {
  if (format.bits != 8 && format.bits != 4)
    fail("{}: weights of {} bits; expected 8 or 4", layer, format.bits);
  if (format.group_size < 0 || format.group_size % 8 != 0)
    fail("{}: {} weights in a group; expected a multiple of 8, or 0 for whole rows", layer,
         format.group_size);
}

// Checks weights, scales and bias; returns O.
std::int64_t check_weights(std::span<const TensorDesc* const> inputs, const WeightFormat& format,
                           std::int64_t depth, std::string_view layer) {
  const TensorDesc& weights = *inputs[1];
  if (weights.shape.rank() != 2 || weights.shape[0] < 1 || depth < 1)
    fail("{}: weights {} for a depth of {}; expected two dimensions, not empty", layer, weights.str(), depth);
  const std::int64_t outputs = weights.shape[0];
  check_operand(weights, Shape{outputs, format.row_bytes(depth)}, format.bits == 8 ? DType::i8 : DType::u8,
                layer, "weights");
  check_operand(*inputs[2], Shape{outputs, format.groups(depth)}, DType::f32, layer, "scales");
  if (const TensorDesc* bias = optional_input(inputs, 3))
    check_operand(*bias, Shape{outputs}, DType::f32, layer, "bias");
  return outputs;
}

std::string format_summary(const WeightFormat& format) {
  return format.group_size == 0 ? fmt::format("int{}", format.bits)
                                : fmt::format("int{} g{}", format.bits, format.group_size);
}

}  // namespace

WLinear::WLinear(WLinearAttributes attributes) : LayerOf(attributes) {
  check_format(attributes_.format, kType);
}

std::vector<TensorDesc> WLinear::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 3, 1);
  const TensorDesc& x = *inputs[0];
  check_operand(x, x.shape, DType::f32, kType, "x");
  if (x.shape.rank() == 0) fail("WLinear: x is a scalar");
  const int last = x.shape.rank() - 1;
  std::array<std::int64_t, kMaxRank> dims{};
  std::copy(x.shape.dims().begin(), x.shape.dims().end(), dims.begin());
  dims[static_cast<std::size_t>(last)] = check_weights(inputs, attributes_.format, x.shape[last], kType);
  return {
      {Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(last) + 1)), DType::f32}};
}

bool WLinear::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && inputs.descs[0]->shape.rank() > 1;
}

Work WLinear::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  return {saturating_product(outputs[0].elements(), inputs[0]->shape[inputs[0]->shape.rank() - 1])};
}

std::string WLinear::summary() const {
  return format_summary(attributes_.format) + clamp_summary(attributes_.activation);
}

WConv::WConv(WConvAttributes attributes) : LayerOf(attributes) {
  check_format(attributes_.format, kType);
  check_window(attributes_.conv.window, "WConv");
  if (attributes_.conv.window.taps() != 1 || attributes_.conv.groups != 1) {
    fail("WConv: a kernel of {} in {} groups; expected one tap and one group", attributes_.conv.window.str(),
         attributes_.conv.groups);
  }
}

std::vector<TensorDesc> WConv::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 3, 2);
  const TensorDesc& x = *inputs[0];
  const int rank = attributes_.conv.window.rank;
  check_operand(x, x.shape, DType::f32, kType, "x");
  if (x.shape.rank() != rank + 2)
    fail("WConv: x is {}; a kernel of {} needs {} dimensions", x.shape.str(), attributes_.conv.window.str(),
         rank + 2);
  const std::int64_t outputs = check_weights(inputs, attributes_.format, x.shape[1], kType);
  const TensorDesc y{window_output_shape(attributes_.conv.window, x.shape, outputs), DType::f32};
  if (const TensorDesc* residual = optional_input(inputs, 4))
    check_operand(*residual, y.shape, DType::f32, kType, "residual");
  return {y};
}

bool WConv::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0, 4});
}

Work WConv::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const {
  return {saturating_product(outputs[0].elements(), inputs[0]->shape[1]),
          window_read_share(attributes_.conv.window, inputs[0]->shape)};
}

std::string WConv::summary() const {
  return Conv(attributes_.conv).summary() + " " + format_summary(attributes_.format);
}

}  // namespace pipit::internal
