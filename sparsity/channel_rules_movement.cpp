// What layers that only move elements do with channels.
#include <algorithm>
#include <cmath>

#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_walk.h"

namespace pipit::internal {

namespace {

std::int64_t elements_behind(const Shape& shape, int axis) {
  std::int64_t count = 1;
  for (int d = axis + 1; d < shape.rank(); ++d) count *= shape[d];
  return count;
}

// The elements of a channel lie in blocks that follow each other periodically. The channels are along that dimension of
// the result which steps through the blocks and spans whole periods.
void tie_reshape(ChannelWalk& walk, const Node& node) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const Shape& y = walk.shape(node.outputs[0]);
  const std::int64_t block = x.inner * elements_behind(walk.shape(node.inputs[0]), x.axis);
  const std::int64_t period = block * static_cast<std::int64_t>(x.size());
  for (int d = 1; d < y.rank() && period > 0; ++d) {
    const std::int64_t behind = elements_behind(y, d);
    if (behind == 0 || block % behind != 0 || behind * y[d] % period != 0) continue;
    return walk.set(node.outputs[0], {d, block / behind, x.groups, x.rest});
  }
  walk.keep_all(x, "it splits the channels up");
}

// A list that a rule may make: shapes say nothing about memory that exists.
constexpr std::int64_t kMaxEntries = std::int64_t{1} << 24;

// The entries of positions [first, first + count) of `extent`, as a list of their own.
ValueChannels part(ChannelWalk& walk, const ValueChannels& x, std::int64_t extent, std::int64_t first,
                   std::int64_t count) {
  if (count == extent) return x;
  const bool blocks = first % x.inner == 0 && count % x.inner == 0;
  const std::int64_t step = blocks ? x.inner : 1;
  if (count / step > kMaxEntries) {
    walk.keep_all(x, "too many channels");
    return {};
  }
  std::vector<int> groups;
  std::vector<double> rest;
  for (std::int64_t p = first; p < first + count; p += step) {
    const std::size_t i = x.entry(p);
    groups.push_back((*x.groups)[i]);
    rest.push_back(x.rest_of(i));
  }
  return walk.made(x.axis, std::move(groups), step, std::move(rest));
}

// Side by side along the channels.
void tie_joined(ChannelWalk& walk, const Node& node, int axis) {
  std::int64_t inner = 0;  // that of all operands, or 1
  for (const ValueId id : node.inputs) {
    const ValueChannels& x = walk.of(id);
    if (x.known() && x.axis != axis)
      walk.keep_all(x, "it is joined along another dimension than its channels");
    const std::int64_t own = x.known() && x.axis == axis ? x.inner : 1;
    inner = inner == 0 || inner == own ? own : 1;
  }
  std::vector<int> groups;
  std::vector<double> rest;
  for (const ValueId id : node.inputs) {
    const ValueChannels& x = walk.of(id);
    const bool known = x.known() && x.axis == axis;
    for (std::int64_t p = 0; p < walk.shape(id)[axis]; p += inner) {
      if (std::ssize(groups) > kMaxEntries) return walk.keep_inputs(node, "too many channels");
      groups.push_back(known ? (*x.groups)[x.entry(p)] : -1);
      rest.push_back(known ? x.rest_of(x.entry(p)) : 0);
    }
  }
  walk.set(node.outputs[0], walk.made(axis, std::move(groups), inner, std::move(rest)));
}

void tie_concat(ChannelWalk& walk, const Node& node, const ConcatAttributes& attributes) {
  const auto known =
      std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return walk.of(id).known(); });
  if (known == node.inputs.end()) return;
  const Shape& y = walk.shape(node.outputs[0]);
  const int axis = normalize_axis(attributes.axis, y.rank(), "Concat");
  const bool along = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return walk.of(id).known() && walk.of(id).axis == axis; });
  if (along) return tie_joined(walk, node, axis);
  // Along another dimension all of them need the same channels, and the same rest.
  const ValueChannels& first = walk.of(*known);
  for (const ValueId id : node.inputs) {
    const ValueChannels& x = walk.of(id);
    if (!x.known() || x.axis != first.axis || x.inner != first.inner || x.size() != first.size())
      return walk.keep_inputs(node, "its operands have different channels");
  }
  for (const ValueId id : node.inputs) walk.tie_all(first, walk.of(id));
  walk.set(node.outputs[0], walk.mapped(first, first.axis, [&](std::size_t i, double rest) {
    const bool same = std::all_of(node.inputs.begin(), node.inputs.end(),
                                  [&](ValueId id) { return walk.of(id).rest_of(i) == rest; });
    return same ? rest : ChannelWalk::kVaries;
  }));
}

void tie_split(ChannelWalk& walk, const Node& node, const SplitAttributes& attributes) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const int axis = normalize_axis(attributes.axis, walk.shape(node.inputs[0]).rank(), "Split");
  std::int64_t first = 0;
  for (const ValueId id : node.outputs) {
    const std::int64_t size = walk.shape(id)[axis];
    walk.set(id, axis == x.axis ? part(walk, x, walk.shape(node.inputs[0])[axis], first, size) : x);
    first += size;
  }
}

void tie_slice(ChannelWalk& walk, const Node& node, const SliceAttributes& attributes) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const ResolvedSlice slice = resolve_slice(attributes, walk.shape(node.inputs[0]));
  const auto axis = static_cast<std::size_t>(x.axis);
  if (slice.step[axis] != 1 || slice.count[axis] == 0)
    return walk.keep_all(x, "it takes channels with a step");
  walk.set(node.outputs[0],
           part(walk, x, walk.shape(node.inputs[0])[x.axis], slice.start[axis], slice.count[axis]));
}

void tie_transpose(ChannelWalk& walk, const Node& node, const TransposeAttributes& attributes) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const auto& permutation = attributes.permutation;
  const auto at = std::find(permutation.begin(), permutation.end(), x.axis);
  walk.set(node.outputs[0], {static_cast<int>(at - permutation.begin()), x.inner, x.groups, x.rest});
}

void tie_expand(ChannelWalk& walk, const Node& node) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const Shape& from = walk.shape(node.inputs[0]);
  const Shape& to = walk.shape(node.outputs[0]);
  const int axis = x.axis + to.rank() - from.rank();
  if (to[axis] != from[x.axis]) return walk.keep_all(x, "one channel is spread over several");
  walk.set(node.outputs[0], {axis, x.inner, x.groups, x.rest});
}

// Channels that are positions of one square elsewhere are tied.
void tie_depth_to_space(ChannelWalk& walk, const Node& node, const DepthToSpaceAttributes& a) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  if (!walk.is_plain(node.inputs[0])) return walk.keep_all(x, "its input's channels are not dimension 1");
  const std::int64_t square = a.block * a.block;
  const std::int64_t channels = walk.shape(node.outputs[0])[1];
  std::vector<int> groups;
  std::vector<double> rest;
  for (std::int64_t c = 0; c < channels; ++c) {
    if (a.inverse) {  // blocks of all input channels, one for each position
      const std::size_t from = static_cast<std::size_t>(c) % x.size();
      groups.push_back((*x.groups)[from]);
      rest.push_back(x.rest_of(from));
      continue;
    }
    const std::int64_t first = a.column_row_depth ? c * square : c;
    const std::int64_t step = a.column_row_depth ? 1 : channels;
    const auto at = [&](std::int64_t s) { return static_cast<std::size_t>(first + s * step); };
    for (std::int64_t s = 1; s < square; ++s) {
      walk.tie((*x.groups)[at(0)], (*x.groups)[at(s)]);
      if (x.rest_of(at(0)) != x.rest_of(at(s)))
        walk.keep((*x.groups)[at(0)], "without its weights the channel would not be a constant");
    }
    groups.push_back((*x.groups)[at(0)]);
    rest.push_back(x.rest_of(at(0)));
  }
  walk.set(node.outputs[0], walk.made(1, std::move(groups), 1, std::move(rest)));
}

}  // namespace

bool tie_movement_layer(ChannelWalk& walk, const Node& node) {
  if (walk.graph().value(node.outputs[0]).desc.dtype != DType::f32) return false;
  if (layer_if<Reshape>(node) != nullptr) {
    tie_reshape(walk, node);
  } else if (const auto* concat = layer_if<Concat>(node)) {
    tie_concat(walk, node, concat->attributes());
  } else if (const auto* split = layer_if<Split>(node)) {
    tie_split(walk, node, split->attributes());
  } else if (const auto* slice = layer_if<Slice>(node)) {
    tie_slice(walk, node, slice->attributes());
  } else if (const auto* transpose = layer_if<Transpose>(node)) {
    tie_transpose(walk, node, transpose->attributes());
  } else if (layer_if<Expand>(node) != nullptr) {
    tie_expand(walk, node);
  } else if (const auto* depth = layer_if<DepthToSpace>(node)) {
    tie_depth_to_space(walk, node, depth->attributes());
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal
