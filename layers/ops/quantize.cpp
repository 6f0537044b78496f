#include "layers/ops/quantize.h"

#include <fmt/format.h>

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

std::string summary_of(const Quantization& q) {
  return fmt::format("{} scale {:.4g} zero {}", dtype_name(q.dtype), q.scale, q.zero_point);
}

void check_integer(const Quantization& q, std::string_view layer) {
  if (!q.quantized()) fail("{}: expected i8 or u8, got f32", layer);
  check_quantization(q, layer, "the tensor");
}

}  // namespace

Quantize::Quantize(Quantization y) : LayerOf(y) {
  check_integer(attributes_, kType);
}

std::vector<TensorDesc> Quantize::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, DType::f32, kType, "x");
  return {{inputs[0]->shape, attributes_.dtype}};
}

bool Quantize::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string Quantize::summary() const {
  return summary_of(attributes_);
}

Dequantize::Dequantize(Quantization x) : LayerOf(x) {
  check_integer(attributes_, kType);
}

std::vector<TensorDesc> Dequantize::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  check_operand(*inputs[0], inputs[0]->shape, attributes_.dtype, kType, "x");
  return {{inputs[0]->shape, DType::f32}};
}

bool Dequantize::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0});
}

std::string Dequantize::summary() const {
  return summary_of(attributes_);
}

}  // namespace pipit::internal
