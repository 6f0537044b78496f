// Where the constants of a node have the channels of its values.
#pragma once

#include <vector>

#include "engine/graph/graph.h"
#include "sparsity/kept_channels.h"

namespace pipit::internal {

/// A dimension of a constant operand that is the channel dimension of a value.
struct ChannelConstant {
  std::size_t input = 0;  ///< of the node
  int axis = 0;
  ValueId channels = kNoValue;  ///< the value; of its positions the constant has the first extents
  /// Whether it writes the channels, so that zeros there are what is left of a channel without weights. Otherwise it
  /// reads them, or belongs to them otherwise.
  bool writes = false;
  bool reads = false;
};

/// The constants of one node, as far as the values are known in `found`.
std::vector<ChannelConstant> channel_constants(const Graph& graph, const ChannelGroups& found,
                                               const Node& node);

/// Whether a convolution of several groups is tied by whole groups (find_channel_groups).
bool ties_whole_groups(std::int64_t groups, std::int64_t outputs);

}  // namespace pipit::internal
