// Which weights of a model are removed: structured masks, and what they make of a graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// What a group of weights is that is removed at once. Weights are [O, I, kernel...] as RealWeights has them
/// (layers/passes/real_weights.h); a convolution of several groups has I input channels in each.
enum class MaskMode : std::uint8_t {
  k,  ///< neighbouring input channels of one tap, for a panel of neighbouring outputs: rows of the im2col product
  channel,  ///< an output channel, with its bias
  block,    ///< neighbouring output channels, with their biases
  input,    ///< neighbouring input channels with all taps, for a panel of neighbouring outputs
};
/// "k", "channel", "block", "input".
std::string_view mask_mode_name(MaskMode mode);

/// The groups of one layer.
struct LayerMask {
  std::string node;
  MaskMode mode = MaskMode::k;
  /// In a group: of k and input input channels, of block outputs; else 1. The last may have fewer.
  std::int64_t channels = 1;
  /// Masks of k and input: outputs that share a list. The last panel may have fewer. 0: all outputs, for input all of a
  /// group of the convolution.
  std::int64_t panel = 0;
  /// Per group, 1 where it is removed: of k [panels, taps, input groups], of channel [O], of block [blocks], of input
  /// [panels, input groups].
  std::vector<std::uint8_t> removed;
};

/// How many marks a mask of these options has for weights of `shape` in a convolution of `groups` (1: any other layer).
/// Throws Error for a channel count or panel out of range.
std::size_t mask_size(const LayerMask& mask, const Shape& shape, std::int64_t groups);

/// Where in LayerMask::removed the weight of an output, an input channel and a tap is.
std::size_t mark_of(const LayerMask& mask, const Shape& shape, std::int64_t groups, std::int64_t output,
                    std::int64_t input, std::int64_t tap);

/// Per weight, 1 where it is removed. Throws Error when `removed` is not of mask_size().
std::vector<std::uint8_t> removed_weights(const LayerMask& mask, const Shape& shape, std::int64_t groups);

/// Per output, 1 where all weights of it and its bias are removed: of modes channel and block; of others all 0.
std::vector<std::uint8_t> removed_outputs(const LayerMask& mask, const Shape& shape, std::int64_t groups);

/// What was removed from a layer before: per weight, 1 where it is zero together with the same position of all outputs
/// of its panel of 16 (counted in each group of the convolution; the last may have fewer), the smallest that kernels
/// leave out, or with all weights of its output.
std::vector<std::uint8_t> zero_rows(std::span<const float> weights, const Shape& shape, std::int64_t groups);

/// Masks of several layers, which may name a node more than once: what any of them removes is removed.
using PruningMask = std::vector<LayerMask>;

/// `graph` with zeros where the mask removes weights and biases. Nodes are those with constant weights
/// (has_constant_weights, layers/passes/real_weights.h). Throws Error when a mask names no such node or does not fit.
Graph apply_mask(const Graph& graph, const PruningMask& mask);

}  // namespace pipit::internal
