#include "layers/ops/normalization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

void check_epsilon(float epsilon, std::string_view layer) {
  if (!(epsilon >= 0) || !std::isfinite(epsilon)) {
    fail("{}: epsilon {}; expected a finite number of at least 0", layer, epsilon);
  }
}

// [N, C, at least `spatial` more dimensions]
void check_channels(const TensorDesc& x, int spatial, std::string_view layer) {
  check_float(x, layer, "x");
  if (x.shape.rank() < 2 + spatial) {
    fail("{}: x is {}; expected at least {} dimensions", layer, x.shape.str(), 2 + spatial);
  }
}

TensorDesc like(const TensorDesc& x) {
  return {x.shape, x.dtype, Layout::row_major};
}

}  // namespace

BatchNorm::BatchNorm(BatchNormAttributes attributes) : LayerOf(attributes) {
  check_epsilon(attributes_.epsilon, kType);
}

std::vector<TensorDesc> BatchNorm::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 5);
  const TensorDesc& x = *inputs[0];
  check_channels(x, 0, kType);
  static constexpr const char* kNames[] = {"x", "scale", "bias", "mean", "variance"};
  for (std::size_t i = 1; i < 5; ++i) check_operand(*inputs[i], Shape{x.shape[1]}, x.dtype, kType, kNames[i]);
  return {like(x)};
}

bool BatchNorm::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && inputs.descs[0]->shape.rank() > 1;
}

LayerNorm::LayerNorm(LayerNormAttributes attributes) : LayerOf(attributes) {
  check_epsilon(attributes_.epsilon, kType);
  if (attributes_.outputs < 1 || attributes_.outputs > 3) {
    fail("LayerNorm: {} outputs; expected 1 to 3", attributes_.outputs);
  }
  if (attributes_.rms && attributes_.outputs != 1)
    fail("LayerNorm: {} outputs by the root mean square; expected 1", attributes_.outputs);
}

std::vector<TensorDesc> LayerNorm::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1, 2);
  const TensorDesc& x = *inputs[0];
  check_float(x, kType, "x");
  const int axis = normalize_axis(attributes_.axis, x.shape.rank(), "LayerNorm");
  const Shape normalized(x.shape.dims().subspan(static_cast<std::size_t>(axis)));
  for (std::size_t i = 1; i < 3; ++i) {
    const TensorDesc* operand = optional_input(inputs, i);
    if (operand == nullptr) continue;
    if (operand->dtype != x.dtype || !(broadcast_shapes(operand->shape, normalized) == normalized)) {
      fail("LayerNorm: {} is {}, which does not broadcast to the normalized {} {}", i == 1 ? "scale" : "bias",
           operand->str(), dtype_name(x.dtype), normalized.str());
    }
  }
  std::vector<TensorDesc> outputs{like(x)};
  Shape statistics = x.shape;
  for (int d = axis; d < x.shape.rank(); ++d) statistics = statistics.with(d, 1);
  outputs.resize(static_cast<std::size_t>(attributes_.outputs), {statistics, x.dtype, Layout::row_major});
  return outputs;
}

bool LayerNorm::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) &&
         normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "LayerNorm") > 0;
}

std::string LayerNorm::summary() const {
  return fmt::format("axis {}{}", attributes_.axis, attributes_.rms ? " rms" : "");
}

InstanceNorm::InstanceNorm(InstanceNormAttributes attributes) : LayerOf(attributes) {
  check_epsilon(attributes_.epsilon, kType);
  if (attributes_.groups < 0) fail("InstanceNorm: {} groups", attributes_.groups);
}

std::vector<TensorDesc> InstanceNorm::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 3);
  const TensorDesc& x = *inputs[0];
  check_channels(x, 1, kType);
  check_operand(*inputs[1], Shape{x.shape[1]}, x.dtype, kType, "scale");
  check_operand(*inputs[2], Shape{x.shape[1]}, x.dtype, kType, "bias");
  if (attributes_.groups > 0 && x.shape[1] % attributes_.groups != 0)
    fail("InstanceNorm: {} channels are no {} groups", x.shape[1], attributes_.groups);
  return {like(x)};
}

std::string InstanceNorm::summary() const {
  return attributes_.groups == 0 ? std::string() : fmt::format("{} groups", attributes_.groups);
}

std::int64_t positions_of(const Shape& x) {
  std::int64_t count = 1;
  for (int d = 2; d < x.rank(); ++d) count *= x[d];
  return count;
}

std::int64_t channels_of_group(const InstanceNormAttributes& attributes, const Shape& x) {
  return attributes.groups == 0 ? 1 : x[1] / attributes.groups;
}

bool InstanceNorm::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

LrnWindow lrn_window(const LrnAttributes& attributes, std::int64_t c, std::int64_t channels) {
  const std::int64_t before = std::min((attributes.size - 1) / 2, c);
  const std::int64_t after = std::min(attributes.size / 2, channels - 1 - c);
  return {c - before, c + after + 1};
}

Lrn::Lrn(LrnAttributes attributes) : LayerOf(attributes) {
  if (attributes_.size < 1) fail("LRN: size {}; expected at least 1", attributes_.size);
  for (const float value : {attributes_.alpha, attributes_.beta, attributes_.bias}) {
    if (!std::isfinite(value)) fail("LRN: alpha, beta and bias must be finite, got {}", value);
  }
}

std::vector<TensorDesc> Lrn::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_channels(*inputs[0], 0, kType);
  return {like(*inputs[0])};
}

bool Lrn::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string Lrn::summary() const {
  return fmt::format("size {}", attributes_.size);
}

}  // namespace pipit::internal
