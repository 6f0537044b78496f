#include "layers/ops/operands.h"

#include <fmt/format.h>

namespace pipit::internal {

void check_inputs(std::span<const TensorDesc* const> inputs, std::string_view layer, std::size_t required,
                  std::size_t optional) {
  if (inputs.size() < required || inputs.size() - required > optional) {
    const std::string most = optional == 0 ? std::string() : fmt::format(" to {}", required + optional);
    fail("{}: {} inputs given, expected {}{}", layer, inputs.size(), required, most);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (inputs[i] == nullptr) fail("{}: input {} is required but absent", layer, i);
  }
}

std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail("{}: {} + {} overflows", what, a, b);
  return sum;
}

std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail("{}: {} x {} overflows", what, a, b);
  return product;
}

Refusal refuse_reduced_precision(const NodeSpec& node) {
  if (node.precision == Precision::fp32) return std::nullopt;
  return fmt::format("does not run in {}", precision_name(node.precision));
}

Refusal refuse_unless_stored_floats(const NodeSpec& node) {
  if (!stores_16_bits(node.precision)) return refuse_unless_f32(node);
  const DType stored = node.outputs[0].dtype;
  const DType narrow = stored_type(node.precision);
  if (stored != DType::f32 && stored != narrow) {
    return fmt::format("the output is {}, only f32 and {} are handled", dtype_name(stored),
                       dtype_name(narrow));
  }
  const auto fits = [&](const TensorDesc& desc, bool constant) {
    return desc.dtype == (constant ? DType::f32 : stored);
  };
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.has_input(i) || fits(*node.inputs[i], node.constant(i) != nullptr)) continue;
    return fmt::format("input {} is {}, the output {}", i, dtype_name(node.inputs[i]->dtype),
                       dtype_name(stored));
  }
  for (const TensorDesc& output : node.outputs) {
    if (!fits(output, false)) return "outputs are stored differently";
  }
  return std::nullopt;
}

Refusal refuse_unless_f32(const NodeSpec& node) {
  if (Refusal refusal = refuse_reduced_precision(node)) return refusal;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.has_input(i) && node.inputs[i]->dtype != DType::f32) {
      return fmt::format("input {} is {}, only f32 is handled", i, dtype_name(node.inputs[i]->dtype));
    }
  }
  for (const TensorDesc& output : node.outputs) {
    if (output.dtype != DType::f32) {
      return fmt::format("the output is {}, only f32 is handled", dtype_name(output.dtype));
    }
  }
  return std::nullopt;
}

}  // namespace pipit::internal
