// Checks of a layer's operands that shape inference and the candidates share.
#pragma once

#include <span>
#include <string_view>

#include "engine/plan/registry.h"

namespace pipit::internal {

/// Throws Error naming `layer` unless there are `required` inputs, all present, and at most `optional` more.
void check_inputs(std::span<const TensorDesc* const> inputs, std::string_view layer, std::size_t required,
                  std::size_t optional = 0);

/// a + b; throws Error naming `what` on overflow of int64.
std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what);
/// a * b; throws Error naming `what` on overflow of int64.
std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what);

constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64;
}

/// Refuses every precision but fp32.
Refusal refuse_reduced_precision(const NodeSpec& node);

/// Refuses every precision but fp32, fp16 and bf16, and operands that are neither all stored as f32 nor all in 16 bits
/// as the precision says. Constants are f32 in all of them.
Refusal refuse_unless_stored_floats(const NodeSpec& node);

/// Refuses every precision but fp32, and any present operand that is not f32.
Refusal refuse_unless_f32(const NodeSpec& node);

}  // namespace pipit::internal
