#include "layers/cpu/conv/window_conv.h"

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

Refusal refuse_window_conv(const NodeSpec& spec, Refusal (*refuse_shape)(const NodeSpec&)) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (Refusal reason = refuse_shape(spec)) return reason;
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (spec.has_input(2) && spec.inputs[2]->dtype != DType::f32) return "the bias must be f32";
  return std::nullopt;
}

bool pays_to_compute_input(const NodeSpec& spec) {
  // A smaller input stays in second-level caches by itself, and nothing computes its rows twice.
  constexpr std::size_t kMinBytes = 1 << 20;
  return spec.inputs[0]->bytes() >= kMinBytes && !spec.has_input(3);
}

}  // namespace pipit::internal
