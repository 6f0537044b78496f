// What the convolutions through libraries share.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/conv.h"

namespace pipit::internal::cuda {

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

/// What a library's convolution takes, of which kernels we know only that they compute tiles of 128 x 128 or so.
/// copies: launches beside the product, `again`: megabytes that they move (LaunchTerms).
inline Estimate library_estimate(const NodeSpec& spec, const ConvAttributes& attributes, std::string name,
                                 int copies, double again) {
  constexpr std::int64_t kTile = 128, kStep = 64;
  const Shape& w = spec.inputs[1]->shape;
  const std::int64_t outputs = w[0], depth = w.elements() / outputs,
                     rows = spec.outputs[0].elements() / outputs;
  const std::int64_t of_group = outputs / attributes.groups;
  const std::int64_t blocks = ceil_div(rows, kTile) * ceil_div(of_group, kTile) * attributes.groups;
  const int processors = processors_of(spec.gpu);
  LaunchTerms terms;
  terms.steps = static_cast<double>(ceil_div(depth, kStep));
  terms.rounds = static_cast<double>(ceil_div(blocks, processors));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.again = again;
  terms.copies = copies;
  terms.products = 1e-9 * static_cast<double>(rows * outputs) * static_cast<double>(depth);
  return estimate_of(std::move(name), terms);
}

/// The part of a name that selects a library's kernels for a convolution.
inline std::string library_family(const NodeSpec& spec, const ConvAttributes& attributes) {
  const bool int8 = spec.inputs[1]->dtype == DType::i8, floats = !int8 && spec.outputs[0].dtype == DType::f32;
  std::string name = int8 ? "i8" : floats ? "f32" : "f16";
  const std::int64_t outputs = spec.inputs[1]->shape[0], width = spec.inputs[1]->shape[1];
  if (attributes.groups == 1) {
    if (attributes.window.taps() == 1) name += " 1x1";
    // The best kernels want channels in multiples of 32.
    const auto multiples_of = [&](std::int64_t n) { return width % n == 0 && outputs % n == 0; };
    if (!floats && !multiples_of(32)) name += multiples_of(16) ? " by 16" : " odd";
  } else if (width == 1) {
    name += " depthwise";
  } else {
    const bool narrow = width >= 4 && width <= 32 && (width & (width - 1)) == 0;
    name += narrow ? " groups of 4 to 32" : " groups";
  }
  return name;
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

}  // namespace pipit::internal::cuda
