// What is left of values and constants when channel groups are removed.
#pragma once

#include <vector>

#include "sparsity/channel_groups.h"

namespace pipit::internal {

/// The channels of a graph's values that stay.
class KeptChannels {
 public:
  /// Throws Error when a marked group is not removable, or `removed` has not one mark per group.
  KeptChannels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed);

  const ValueChannels& channels(ValueId id) const { return found_.values[index(id)]; }
  /// Whether the value loses channels.
  bool loses(ValueId id) const;
  /// Whether position `p` along the value's channel dimension stays.
  bool stays(ValueId id, std::int64_t p) const;
  /// How many of positions [first, first + count) along the value's channel dimension stay.
  std::int64_t count(ValueId id, std::int64_t first, std::int64_t count) const;
  /// Which of positions [0, extent) stay, and which do not.
  std::vector<std::int64_t> positions(ValueId id, bool staying = true) const;
  std::int64_t extent(ValueId id) const;

 private:
  std::int64_t count_before(ValueId id, std::int64_t end) const;

  const Graph& graph_;
  const ChannelGroups& found_;
  const std::vector<bool>& removed_;
};

/// The entries of `tensor` at these positions along `axis`, row-major.
Tensor take(const Tensor& tensor, int axis, const std::vector<std::int64_t>& positions);
/// The tensor with zeros there, row-major.
Tensor zeroed(const Tensor& tensor, int axis, const std::vector<std::int64_t>& positions);

}  // namespace pipit::internal
