// What the convolutions through libraries share.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/cuda/runtime.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/conv.h"
#include "layers/ops/quantization.h"
#include "layers/ops/window.h"

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
    if (narrow && !floats && outputs % 64 != 0) name += " odd";
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

// Patches of a convolution's input as the rows of a matrix.

/// patches [positions, groups, row]: row `p` holds for each group the taps of output position p, per tap the group's
/// channels, 0 where a tap lies in the padding, and zeros up to `row` elements. Of these only what `kept` names.
struct Im2colShape {
  Window window;  ///< of rank 3
  std::int64_t groups = 1;
  std::int64_t group_channels = 1;
  std::int64_t row = 0;  ///< elements of a group's row, at least those that are kept
  /// What a row holds: runs of `block` neighbouring channels of a tap, ascending, each by where it begins in
  /// tap * group_channels + channel. Empty: everything.
  std::vector<std::int64_t> kept;
  std::int64_t block = 1;                ///< divides group_channels
  std::size_t element = 4;               ///< bytes
  std::array<std::int64_t, 3> input{};   ///< extents
  std::array<std::int64_t, 3> output{};  ///< extents
  std::int64_t batch_stride = 0;         ///< strides of the input, in elements
  std::int64_t channel_stride = 0;
  std::array<std::int64_t, 3> stride{};
};

class Im2col {
 public:
  Im2col() = default;
  /// Prepares the table of columns on the current GPU. Throws Error when memory is not to be had.
  explicit Im2col(const Im2colShape& shape);
  /// Why the shape cannot be handled (indices beyond 31 bits); null when it can.
  static const char* problem(const Im2colShape& shape, std::int64_t images);
  /// Gathers the patches of `images` images; all memory on the GPU, the patches 16-byte aligned.
  void run(const void* input, std::int64_t images, void* patches, cudaStream_t stream) const;

 private:
  Im2colShape shape_;
  int vector_ = 1;  // elements that move at once
  std::int64_t columns_ = 0;
  DeviceBuffer table_;
};

// Numbers that distinguish how a foreign kernel may round between int32 sums and INT8.

/// One value per output channel for y = requantize((0 + bias) * multiplier + residual * kProbeResidualScale, bounds,
/// 0), which layers/ops/quantization.h rounds after every operation.
struct RequantizationProbe {
  static constexpr float kResidualScale = 7.3F;

  std::vector<std::int32_t> bias;
  std::vector<float> multiplier;
  std::vector<std::int8_t> residual;
  std::vector<float> value;  ///< before clamping and rounding
};

/// With a residual: values on which either of the two contractions to a multiply-add ends at another integer, in turns,
/// and values beyond `bounds`. Without one: ties, values next to them, values beyond `bounds`, sums that f32 does not
/// have. The same for equal arguments; where `bounds` leave no room for a tie, values beyond them alone.
RequantizationProbe requantization_probe(std::size_t channels, bool residual, const StepBounds& bounds);

}  // namespace pipit::internal::cuda
