// Channels to choose from: which of them stand beside each other, how much they weigh, and which go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/graph.h"
#include "sparsity/channel_groups.h"
#include "sparsity/mask.h"

namespace pipit {

/// The removable groups that the same layers write, say all channels between two convolutions, or those of a residual
/// stream.
struct ChannelList {
  std::vector<int> groups;   ///< in ChannelGroups::groups
  std::vector<int> writers;  ///< nodes with constant weights that write them, ascending
  std::vector<int> readers;  ///< those that read them
  /// Whether one layer alone makes the channels (a depthwise convolution that hands them on does not count), and not
  /// from the graph's input: those that can go without a change to a residual stream.
  bool inner = false;
};
/// In the order of the groups.
std::vector<ChannelList> channel_lists(const Graph& graph, const ChannelGroups& found);

enum class ChannelNorm : std::uint8_t { l1, l2 };
/// Per group, the sum of |w| or of w^2 of all weights that write it (Li et al., "Pruning Filters for Efficient
/// ConvNets", ICLR 2017).
std::vector<double> channel_norms(const Graph& graph, const ChannelGroups& found, ChannelNorm norm);

/// How many of `count` channels stay for this share of them: at least one, and a multiple of `multiple` (kernels
/// compute that many at once) where there are as many, to the nearest and up from the middle.
std::int64_t channels_kept(std::int64_t count, double share, std::int64_t multiple = 1);

/// Marks the groups of the list with the lowest importance (one number per group of the graph; of equal ones the first)
/// until `kept` stay.
void remove_least(const ChannelList& list, std::span<const double> importance, std::int64_t kept,
                  std::vector<bool>& removed);

/// The mask that takes the groups' rows and biases out of the layers that write them. What normalizations would add
/// behind these it leaves, and zero_channels() (sparsity/remove_channels.h) takes. Throws as that does.
PruningMask channel_mask(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

}  // namespace pipit
