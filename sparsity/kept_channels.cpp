#include "sparsity/kept_channels.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace pipit::internal {

KeptChannels::KeptChannels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed)
    : graph_(graph), found_(found), removed_(removed) {
  if (removed.size() != found.groups.size() || found.values.size() != graph.values().size())
    fail("{} marks for {} groups of channels of a graph with {} values, found in one with {}", removed.size(),
         found.groups.size(), graph.values().size(), found.values.size());
  for (std::size_t g = 0; g < removed.size(); ++g) {
    if (removed[g] && !found.groups[g].removable())
      fail("channels cannot be removed: {}", found.groups[g].kept_because);
  }
}

bool KeptChannels::loses(ValueId id) const {
  const ValueChannels& c = channels(id);
  return c.known() && std::any_of(c.groups->begin(), c.groups->end(), [&](int group) {
           return group >= 0 && removed_[static_cast<std::size_t>(group)];
         });
}

bool KeptChannels::stays(ValueId id, std::int64_t p) const {
  const ValueChannels& c = channels(id);
  const int group = c.known() ? (*c.groups)[c.entry(p)] : -1;
  return group < 0 || !removed_[static_cast<std::size_t>(group)];
}

std::int64_t KeptChannels::extent(ValueId id) const {
  return graph_.value(id).desc.shape[channels(id).axis];
}

// The number of kept positions in [0, end).
std::int64_t KeptChannels::count_before(ValueId id, std::int64_t end) const {
  const ValueChannels& c = channels(id);
  const std::int64_t period = c.inner * static_cast<std::int64_t>(c.size());
  std::int64_t in_period = 0;
  std::int64_t in_rest = 0;
  for (std::int64_t p = 0; p < period; p += c.inner) {
    if (!stays(id, p)) continue;
    in_period += c.inner;
    in_rest += std::clamp(end % period - p, std::int64_t{0}, c.inner);
  }
  return end / period * in_period + in_rest;
}

std::int64_t KeptChannels::count(ValueId id, std::int64_t first, std::int64_t count) const {
  return count_before(id, first + count) - count_before(id, first);
}

std::vector<std::int64_t> KeptChannels::positions(ValueId id, bool staying) const {
  std::vector<std::int64_t> positions;
  for (std::int64_t p = 0; p < extent(id); ++p) {
    if (stays(id, p) == staying) positions.push_back(p);
  }
  return positions;
}

namespace {

// A tensor as rows of slabs: [outer, extent of the axis, bytes of a slab].
struct Slabs {
  std::int64_t outer = 1;
  std::int64_t extent = 0;
  std::size_t bytes = 0;
};

Slabs slabs_of(const TensorDesc& desc, int axis) {
  Slabs slabs{1, desc.shape[axis], dtype_bytes(desc.dtype)};
  for (int d = 0; d < axis; ++d) slabs.outer *= desc.shape[d];
  for (int d = axis + 1; d < desc.shape.rank(); ++d) slabs.bytes *= static_cast<std::size_t>(desc.shape[d]);
  return slabs;
}

std::size_t offset(const Slabs& slabs, std::int64_t row, std::int64_t position) {
  return static_cast<std::size_t>(row * slabs.extent + position) * slabs.bytes;
}

}  // namespace

Tensor take(const Tensor& tensor, int axis, const std::vector<std::int64_t>& positions) {
  const Tensor plain = to_layout(tensor.view(), Layout::row_major);
  const Slabs slabs = slabs_of(plain.desc(), axis);
  Tensor result(TensorDesc{plain.shape().with(axis, std::ssize(positions)), plain.desc().dtype});
  std::byte* to = result.view().data;
  for (std::int64_t row = 0; row < slabs.outer; ++row) {
    for (const std::int64_t p : positions) {
      std::memcpy(to, plain.view().data + offset(slabs, row, p), slabs.bytes);
      to += slabs.bytes;
    }
  }
  return result;
}

Tensor zeroed(const Tensor& tensor, int axis, const std::vector<std::int64_t>& positions) {
  Tensor result = to_layout(tensor.view(), Layout::row_major);
  const Slabs slabs = slabs_of(result.desc(), axis);
  for (std::int64_t row = 0; row < slabs.outer; ++row) {
    for (const std::int64_t p : positions)
      std::memset(result.view().data + offset(slabs, row, p), 0, slabs.bytes);
  }
  return result;
}

}  // namespace pipit::internal
