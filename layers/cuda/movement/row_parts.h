// Which Concat or Split is rows side by side: such a Concat is one candidate's, and no other's.
#pragma once

#include <limits>
#include <span>

#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/ops/slicing.h"

namespace pipit::internal::cuda {

inline int concat_axis(const NodeSpec& spec) {
  return normalize_axis(layer_as<Concat>(spec.layer).attributes().axis, spec.outputs[0].shape.rank(),
                        "Concat");
}

/// Elements from one position along the axis to the next.
inline std::int64_t step_along(const TensorDesc& desc, int axis) {
  return desc.strides()[static_cast<std::size_t>(axis)];
}

/// Why tensors do not lie in rows that those of `whole` are made of.
inline Refusal refuse_unless_rows(const TensorDesc& whole, std::span<const TensorDesc* const> parts,
                                  int axis) {
  for (const TensorDesc* part : parts) {
    if (part->dtype != whole.dtype) return "a part has another element type";
    if (part->layout != whole.layout && !part->layouts_coincide()) return "a part has another layout";
    if (step_along(*part, axis) != step_along(whole, axis)) return "a part does not lie in rows of the whole";
  }
  // Positions in a row and rows are 32-bit.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  const std::int64_t row = step_along(whole, axis) * whole.shape[axis];
  if (row > kLimit / static_cast<std::int64_t>(dtype_bytes(whole.dtype)) ||
      (row > 0 && whole.elements() / row > kLimit / 2))
    return "the rows are too long, or too many, for 32-bit offsets";
  return std::nullopt;
}

/// Why a Concat is not rows side by side.
inline Refusal refuse_unless_joins_rows(const NodeSpec& spec) {
  return refuse_unless_rows(spec.outputs[0], spec.inputs, concat_axis(spec));
}

}  // namespace pipit::internal::cuda
