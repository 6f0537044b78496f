// In which order channels that layers pass to each other fall, and what that costs the layers that read them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sparsity/channel_groups.h"
#include "sparsity/eliminate.h"
#include "sparsity/removal.h"

namespace pipit::internal {

/// Removable channel groups that the same layers write and read: what lies between one layer and the next, or a
/// residual stream, the sum of what several layers write, which the blocks on it and what follows them read.
struct ChannelFamily {
  std::vector<int> groups;         ///< in ChannelGroups::groups
  std::set<int> writers, readers;  ///< nodes; a depthwise convolution between them is among the writers
  bool stream = false;             ///< whether several layers write them
};
/// Without those of a reader deeper than most_depth(), or whose readers' depths squared sum to more than three times
/// its square: 0.9 GB of sums.
std::vector<ChannelFamily> find_families(const Graph& graph, const ChannelGroups& found);

/// The path of one family.
struct ChannelPath {
  ChannelFamily family;
  std::vector<int> order;  ///< of the family's groups, as they fall
  /// Summed over readers, each over the variance of its outputs; entry i: once i + 1 groups fell.
  std::vector<double> loss;
  std::size_t block = 1;  ///< this many neighbours fall together, of family.groups from the first one on

  /// How many fall so that this share stays, which is rounded to a multiple of `multiple` channels; in blocks, the
  /// number of whole blocks after which what stays is nearest to the share.
  std::size_t falling(double share, std::size_t multiple) const;
  double loss_after(std::size_t falling) const { return falling == 0 ? 0 : loss[falling - 1]; }
};

/// What a family's groups are in one of its readers: a channel's columns fall together, for all outputs; losses count
/// over the variance of the layer's outputs. `inverse`: covariance_inverse(), needed for second order only.
EliminationPart channels_in(const Graph& graph, const ChannelGroups& found, const ChannelFamily& family,
                            int reader, const Gram& gram, std::vector<double> inverse);

/// The path of a family from what its groups are in all of its readers; `block` neighbours fall together (the last
/// block may have fewer).
ChannelPath order_channels(ChannelFamily family, std::vector<EliminationPart> readers,
                           const EliminationOptions& options, std::size_t block = 1);

/// Rows, biases and columns of the marked groups (one mark per group).
Removals removals_of(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

}  // namespace pipit::internal
