// Constants as GPU kernels keep them: in the element type of the node's values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/graph/dtype.h"
#include "engine/plan/kernel.h"

namespace pipit::internal::cuda {

/// The bits of a value stored as f16 or bf16.
inline std::uint16_t narrow_bits(float value, DType type) {
  return type == DType::f16 ? to_half(value).bits : to_bfloat16(value).bits;
}

/// Uploads f32 values, times `scale`, as f32, f16 or bf16.
inline DeviceBuffer upload(std::span<const float> values, DType type, float scale = 1) {
  if (is_stored_float(type)) {
    std::vector<std::uint16_t> converted(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) converted[i] = narrow_bits(values[i] * scale, type);
    return {converted.data(), converted.size() * sizeof(std::uint16_t)};
  }
  std::vector<float> converted(values.begin(), values.end());
  for (float& value : converted) value *= scale;
  return {converted.data(), converted.size() * sizeof(float)};
}

/// An operand that is either computed at run time or was packed at creation.
class Operand {
 public:
  Operand() = default;
  /// Converts and uploads input `index` where it is a constant.
  Operand(const NodeSpec& spec, std::size_t index, DType type) : index_(index) {
    const Tensor* constant = spec.constant(index);
    if (constant != nullptr) packed_ = upload(constant->values<float>(), type);
  }
  bool packed() const { return packed_.has_value(); }
  std::size_t bytes() const { return packed_ ? packed_->bytes() : 0; }
  const std::byte* data(std::span<const ConstTensorView> inputs) const {
    return packed_ ? packed_->data() : inputs[index_].data;
  }

 private:
  std::size_t index_ = 0;
  std::optional<DeviceBuffer> packed_;
};

/// Why the values of the node are not what a floating-point GPU kernel reads: one of f32, f16 and bf16 for the output
/// and everything computed at run time, f32 for constants.
inline std::optional<std::string> refuse_mixed_types(const NodeSpec& spec) {
  const DType type = spec.outputs[0].dtype;
  if (type != DType::f32 && !is_stored_float(type)) return "the output is neither f32, f16 nor bf16";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (!spec.has_input(i)) continue;
    if (spec.inputs[i]->dtype != (spec.constant(i) != nullptr ? DType::f32 : type))
      return "input " + std::to_string(i) + " is " + spec.inputs[i]->str();
  }
  return std::nullopt;
}

}  // namespace pipit::internal::cuda
