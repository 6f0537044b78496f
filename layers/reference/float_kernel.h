// Registration of reference kernels that exist for f32 and f64.
#pragma once

#include <fmt/format.h>

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

/// Refuses reduced precision, and nodes whose first input is neither f32 nor f64. (Inference has checked that
/// the other operands agree with it.)
inline Refusal refuse_unless_float(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (is_floating(spec.inputs[0]->dtype)) return std::nullopt;
  return fmt::format("input 0 is {}, only f32 and f64 are handled", dtype_name(spec.inputs[0]->dtype));
}

/// Registers Body::run<T>(layer, inputs, outputs, pool) for T = float and double as the reference of layer L.
template <typename L, typename Body>
void add_float_reference(Registry& registry, Refusal (*refuse)(const NodeSpec&) = refuse_unless_float) {
  add_layer_kernel<L>(registry, kReference, refuse,
                      [](const L& layer, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs, const RunContext& context) {
                        if (inputs[0].desc.dtype == DType::f64) {
                          Body::template run<double>(layer, inputs, outputs, context.pool);
                        } else {
                          Body::template run<float>(layer, inputs, outputs, context.pool);
                        }
                      });
}

}  // namespace pipit::internal
