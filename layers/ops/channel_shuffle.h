// Channels in another order: a Concat of groups, of which one channel after the other is taken (ShuffleNet).
#pragma once

#include "engine/graph/layer.h"

namespace pipit::internal {

struct ChannelShuffleAttributes {
  std::int64_t groups = 1;          ///< of all channels, which they divide
  std::vector<std::int64_t> sizes;  ///< channels of the outputs, one after the other
  /// How many of each input's channels there are, the others being left out; all where this is empty.
  std::vector<std::int64_t> taken = {};
  /// Channels of each output, those after its size being the last of them again (of one group on a GPU, some of the
  /// last: they are not read); `sizes` where this is empty.
  std::vector<std::int64_t> widths = {};

  std::int64_t taken_of(std::size_t input, const TensorDesc& x) const {
    return taken.empty() ? x.shape[1] : taken[input];
  }
  std::int64_t width_of(std::size_t output) const { return widths.empty() ? sizes[output] : widths[output]; }
};

/// With C channels side by side in the inputs, channel c of all outputs is that at c % groups * (C / groups) +
/// c / groups: Reshape to [N, groups, C / groups, ...], Transpose of dimensions 1 and 2, and Reshape back (Zhang et al.
/// 2017, ShuffleNet; torch.nn.ChannelShuffle), with the Concat before them and the Split after them. Made by passes.
/// Inputs: up to kMax tensors [N, channels, ...], equal but for their channels. One output per size, up to kMax.
class ChannelShuffle final : public LayerOf<ChannelShuffle, ChannelShuffleAttributes> {
 public:
  static constexpr std::string_view kType = "ChannelShuffle";
  // Kernels have lists of what of an input goes where.
  static constexpr std::size_t kMax = 16;  ///< inputs, and outputs
  static constexpr std::int64_t kMaxGroups = 64;
  explicit ChannelShuffle(ChannelShuffleAttributes attributes);

  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

}  // namespace pipit::internal
