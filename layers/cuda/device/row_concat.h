// Which Concat is rows side by side: those are one candidate's, and no other's.
#pragma once

#include <limits>

#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/ops/slicing.h"

namespace pipit::cuda {

inline int concat_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Concat>(spec.layer).attributes().axis, spec.outputs[0].shape.rank(),
                        "Concat");
}

/// Elements from one position along the axis to the next.
inline std::int64_t step_along(const TensorDesc& desc, int axis) {
  return desc.strides()[static_cast<std::size_t>(axis)];
}

/// Why a Concat's inputs do not lie in rows that the output's are made of.
inline Refusal refuse_unless_rows(const NodeSpec& spec) {
  const TensorDesc& y = spec.outputs[0];
  const int axis = concat_axis(spec);
  for (const TensorDesc* x : spec.inputs) {
    if (x->dtype != y.dtype) return "an input has another element type";
    if (x->layout != y.layout && !x->layouts_coincide()) return "an input has another layout";
    if (step_along(*x, axis) != step_along(y, axis)) return "an input does not lie in rows of the output";
  }
  // Positions in a row and rows are 32-bit.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  const std::int64_t row = step_along(y, axis) * y.shape[axis];
  if (row > kLimit / static_cast<std::int64_t>(dtype_bytes(y.dtype)) ||
      (row > 0 && y.elements() / row > kLimit / 2))
    return "the rows are too long, or too many, for 32-bit offsets";
  return std::nullopt;
}

}  // namespace pipit::cuda
