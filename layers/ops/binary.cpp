#include "layers/ops/binary.h"

#include <fmt/format.h>

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

bool is_logical(BinaryKind kind) {
  return kind == BinaryKind::logical_and || kind == BinaryKind::logical_or || kind == BinaryKind::logical_xor;
}

void check_dtypes(BinaryKind kind, DType a, DType b) {
  if (a != b && kind != BinaryKind::pow) {
    fail("Binary {}: the inputs are {} and {}, expected one type", binary_name(kind), dtype_name(a),
         dtype_name(b));
  }
  for (const DType type : {a, b}) {
    const bool fits =
        type == DType::boolean ? is_logical(kind) || kind == BinaryKind::equal : !is_logical(kind);
    if (!fits) fail("Binary {}: not defined on {}", binary_name(kind), dtype_name(type));
  }
}

}  // namespace

std::string_view binary_name(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::add:
      return "add";
    case BinaryKind::sub:
      return "sub";
    case BinaryKind::mul:
      return "mul";
    case BinaryKind::div:
      return "div";
    case BinaryKind::min:
      return "min";
    case BinaryKind::max:
      return "max";
    case BinaryKind::pow:
      return "pow";
    case BinaryKind::mod:
      return "mod";
    case BinaryKind::fmod:
      return "fmod";
    case BinaryKind::prelu:
      return "prelu";
    case BinaryKind::equal:
      return "equal";
    case BinaryKind::less:
      return "less";
    case BinaryKind::less_equal:
      return "less_equal";
    case BinaryKind::greater:
      return "greater";
    case BinaryKind::greater_equal:
      return "greater_equal";
    case BinaryKind::logical_and:
      return "and";
    case BinaryKind::logical_or:
      return "or";
    case BinaryKind::logical_xor:
      return "xor";
  }
  return "?";
}

bool is_comparison(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::equal:
    case BinaryKind::less:
    case BinaryKind::less_equal:
    case BinaryKind::greater:
    case BinaryKind::greater_equal:
      return true;
    default:
      return false;
  }
}

std::vector<TensorDesc> Binary::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 2);
  const TensorDesc& a = *inputs[0];
  const TensorDesc& b = *inputs[1];
  const BinaryKind kind = attributes_.kind;
  check_dtypes(kind, a.dtype, b.dtype);
  const Shape shape = broadcast_shapes(a.shape, b.shape);
  if (kind == BinaryKind::prelu && !(shape == a.shape)) {
    fail("Binary prelu: slope {} does not broadcast to x {}", b.shape.str(), a.shape.str());
  }
  const DType type = is_comparison(kind) ? DType::boolean : a.dtype;
  if (!attributes_.activation.is_identity() && !is_floating(type)) {
    fail("Binary {}: an activation needs a floating-point result, not {}", binary_name(kind),
         dtype_name(type));
  }
  return {{shape, type}};
}

bool Binary::is_batch_independent(const SampledInputs& inputs) const {
  return broadcast_keeps_samples(inputs);
}

std::string Binary::summary() const {
  return std::string(binary_name(attributes_.kind)) + clamp_summary(attributes_.activation);
}

std::vector<TensorDesc> Where::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 3);
  if (inputs[0]->dtype != DType::boolean) {
    fail("Where: the condition is {}, expected bool", dtype_name(inputs[0]->dtype));
  }
  if (inputs[1]->dtype != inputs[2]->dtype) {
    fail("Where: the choices are {} and {}, expected one type", dtype_name(inputs[1]->dtype),
         dtype_name(inputs[2]->dtype));
  }
  const Shape choices = broadcast_shapes(inputs[1]->shape, inputs[2]->shape);
  return {{broadcast_shapes(inputs[0]->shape, choices), inputs[1]->dtype}};
}

bool Where::is_batch_independent(const SampledInputs& inputs) const {
  return broadcast_keeps_samples(inputs);
}

}  // namespace pipit::internal
