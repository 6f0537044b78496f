// Which channels of a network live and die together, so that they can be removed from it.
//
// A channel that no weight writes any more is zero, and what reads it needs no weights for it: both can go. Layers tie
// channels to each other: an addition needs the same ones on both sides, a depthwise convolution writes those that it
// reads, a classifier after a Flatten has a block of columns for each (the dependency graph of Fang et al., "DepGraph:
// Towards Any Structural Pruning", CVPR 2023). A group is what is tied.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Neighbouring channels of a node with constant weights (has_constant_weights, layers/passes/real_weights.h).
struct ChannelRun {
  int node = 0;  ///< in Graph::nodes()
  std::int64_t first = 0;
  std::int64_t count = 1;
  friend bool operator==(const ChannelRun&, const ChannelRun&) = default;
};

/// Channels that can only be removed together.
struct ChannelGroup {
  std::vector<ChannelRun> outputs;  ///< output channels: rows of weights [O, I, kernel...], and their biases
  std::vector<ChannelRun> inputs;   ///< input channels, counted through all groups of a convolution
  std::string kept_because;         ///< empty: the group can be removed

  bool removable() const { return kept_because.empty(); }
};

/// The groups along one dimension of a value: position p belongs to group groups[p / inner % groups.size()].
struct ValueChannels {
  int axis = -1;           ///< -1: no channel of the value can be removed
  std::int64_t inner = 1;  ///< neighbouring positions of one channel (of a Flatten H * W)
  std::shared_ptr<const std::vector<int>> groups;  ///< -1: belongs to none, and stays
  /// What each of `groups` is everywhere, once its weights and biases are zero; null: 0. After Sigmoid it is 0.5.
  std::shared_ptr<const std::vector<double>> rest;

  bool known() const { return axis >= 0; }
  std::size_t size() const { return groups ? groups->size() : 0; }
  std::size_t entry(std::int64_t position) const {
    return static_cast<std::size_t>(position / inner) % groups->size();
  }
  double rest_of(std::size_t i) const { return rest ? (*rest)[i] : 0; }
};

struct ChannelGroups {
  std::vector<ChannelGroup> groups;   ///< in the order in which the graph computes their first channels
  std::vector<ValueChannels> values;  ///< one per value of the graph
};

/// The groups of a floating-point graph without layouts, as read or as fuse() leaves it. What the graph's outputs show,
/// what a layer mixes (a normalization over channels, a softmax) or what comes to a layer that is not known here is not
/// removable, with the reason. A convolution of several groups ties whole groups, inputs with outputs, or the same
/// channel of every group, whichever leaves more choice. Takes time in proportion to nodes times channels; where these
/// are more than 2^26, an absurd model, no groups are found.
ChannelGroups find_channel_groups(const Graph& graph);

}  // namespace pipit::internal
