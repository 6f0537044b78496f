// What the convolutions through libraries share.
#pragma once

#include <vector>

#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/device/constants.h"
#include "layers/ops/conv.h"

namespace pipit::cuda {

/// Refuses weights or bias computed at run time, outputs that are not channels_last, empty tensors.
inline Refusal refuse_library_operands(const NodeSpec& spec) {
  if (spec.constant(1) == nullptr) return "the weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(spec.outputs[0])) return "the output must be channels_last";
  if (spec.inputs[0]->elements() == 0 || spec.outputs[0].elements() == 0) return "a tensor is empty";
  return std::nullopt;
}

/// Refuses what no library path handles: those, residuals that are not channels_last, mixed element types.
inline Refusal refuse_library_conv(const NodeSpec& spec) {
  if (Refusal reason = refuse_mixed_types(spec)) return reason;
  if (Refusal reason = refuse_library_operands(spec)) return reason;
  // A constant residual is rearranged when the kernel is created.
  if (spec.has_input(3) && spec.constant(3) == nullptr && !is_channels_last(*spec.inputs[3]))
    return "the residual must be channels_last";
  return std::nullopt;
}

/// Weights [O, C/groups, kernel...] as [O, taps, C/groups], each filter's elements followed by zeros up to `row`.
template <typename T>
std::vector<T> filters_by_tap(const Tensor& weights, std::int64_t row) {
  const std::int64_t outputs = weights.shape()[0];
  const std::int64_t channels = weights.shape()[1];
  const std::int64_t taps = weights.shape().elements() / outputs / channels;
  const std::span<const T> from = weights.values<T>();
  std::vector<T> packed(static_cast<std::size_t>(outputs * row), T{0});
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        packed[static_cast<std::size_t>(o * row + t * channels + c)] =
            from[static_cast<std::size_t>((o * channels + c) * taps + t)];
      }
    }
  }
  return packed;
}

}  // namespace pipit::cuda
