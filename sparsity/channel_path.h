// In which order channels that layers pass to each other fall, and what that costs the layers that read them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sparsity/channel_groups.h"
#include "sparsity/eliminate.h"
#include "sparsity/removal.h"

namespace pipit {

/// Removable channel groups that the same layers write and read: what lies between one layer and the next. Sums of
/// several layers (residual streams) are left alone: everything reads them.
struct ChannelFamily {
  std::vector<int> groups;         ///< in ChannelGroups::groups
  std::set<int> writers, readers;  ///< nodes; a depthwise convolution between them is among the writers
};
std::vector<ChannelFamily> find_families(const Graph& graph, const ChannelGroups& found);

/// The path of one family.
struct ChannelPath {
  ChannelFamily family;
  std::vector<int> order;  ///< of the family's groups, as they fall
  std::vector<double>
      loss;  ///< summed over readers, each over the variance of its outputs, once so many and one fell

  /// How many fall so that this share stays, which is rounded to a multiple of `multiple` channels.
  std::size_t falling(double share, std::size_t multiple) const;
  double loss_after(std::size_t falling) const { return falling == 0 ? 0 : loss[falling - 1]; }
};

/// What one reader says about the groups of a family: the order in which they fall from it alone. Its columns of a
/// channel fall together, for all outputs.
Elimination eliminate_channels(const Graph& graph, const ChannelGroups& found, const ChannelFamily& family,
                               int reader, const Gram& gram, const std::vector<double>& inverse,
                               const EliminationOptions& options);

/// The path of a family from what its readers say, in the order of family.readers: of one reader its own order; of
/// several the groups by the sum of their losses.
ChannelPath join_readers(ChannelFamily family, const std::vector<Elimination>& readers);

/// Rows, biases and columns of the marked groups (one mark per group).
Removals removals_of(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

}  // namespace pipit
