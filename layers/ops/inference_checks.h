// Checks of operand shapes and types in shape inference, besides those of layers/ops/operands.h.
#pragma once

#include <limits>
#include <span>
#include <string_view>

#include "layers/ops/operands.h"

namespace pipit::internal {

/// An axis as what indexes dims.
constexpr std::size_t at(int axis) {
  return static_cast<std::size_t>(axis);
}

/// Null where the optional input is absent.
inline const TensorDesc* optional_input(std::span<const TensorDesc* const> inputs, std::size_t index) {
  return index < inputs.size() ? inputs[index] : nullptr;
}

/// Throws Error unless the operand is f32 or f64.
inline void check_float(const TensorDesc& desc, std::string_view layer, std::string_view name) {
  if (desc.dtype != DType::f32 && desc.dtype != DType::f64) {
    fail("{}: {} is {}; expected f32 or f64", layer, name, dtype_name(desc.dtype));
  }
}

/// Throws Error unless the operand has this shape and type.
inline void check_operand(const TensorDesc& desc, const Shape& shape, DType dtype, std::string_view layer,
                          std::string_view name) {
  if (!(desc.shape == shape) || desc.dtype != dtype) {
    fail("{}: {} is {}; expected {} {}", layer, name, desc.str(), dtype_name(dtype), shape.str());
  }
}

/// a * b of non-negative numbers, held at the largest int64 where it would overflow (for work estimates).
inline std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  return b != 0 && a > kMax / b ? kMax : a * b;
}

}  // namespace pipit::internal
