// Structured pruning made real: a smaller graph without the channels that were pruned.
#pragma once

#include <vector>

#include "engine/graph/graph.h"
#include "sparsity/channel_groups.h"

namespace pipit::internal {

/// `graph`, of which `found` are the channel groups, with zeros for those marked in `removed` (one mark per group):
/// their rows of weights and their biases, and what normalizations and sums of constants would add to them. Shapes stay
/// as they are: this is the network that remove_channels() makes smaller. Throws Error for a group that is not
/// removable.
Graph zero_channels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

/// `graph` without those groups: weights, biases and constants per channel are cut, groups of convolutions, targets of
/// Reshape, sizes of Split and the like follow. Its outputs are those of zero_channels() but for the order of sums;
/// where a removed channel would not be zero but a constant (after a Sigmoid, for example), the biases that read it
/// take it. Nodes, inputs and outputs keep their names. Throws Error for a group that is not removable, and when a
/// value would be left without channels.
Graph remove_channels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

/// Takes marks back, of the first group of every value that would be left without channels.
void spare_last_channels(const ChannelGroups& found, std::vector<bool>& removed);

/// Marks of the removable groups that compute nothing, in a model from anyone: all weights and biases that write them
/// are zero, or all weights that read them are; the last of a layer are spared. What remove_channels() leaves has the
/// outputs of the graph itself.
std::vector<bool> find_dead_groups(const Graph& graph, const ChannelGroups& found);

}  // namespace pipit::internal
