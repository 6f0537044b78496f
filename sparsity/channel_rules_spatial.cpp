// What normalizations, pools, reductions, resizing and padding do with channels.
#include <algorithm>
#include <cmath>

#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_walk.h"

namespace pipit::internal {

namespace {

constexpr const char* kMixes = "it normalizes over channels";

// Scale, shift and what else there is per channel go with it, so that nothing of it is left after the layer.
void tie_norm(ChannelWalk& walk, const Node& node) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  if (!walk.is_plain(node.inputs[0])) return walk.keep_all(x, "its input's channels are not dimension 1");
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (walk.constant(node.inputs[i]) == nullptr)
      return walk.keep_all(x, "its scale or shift is not constant");
  }
  walk.set(node.outputs[0], {x.axis, x.inner, x.groups, nullptr});
}

void tie_pool(ChannelWalk& walk, const Node& node, const PoolAttributes& a) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  if (x.axis != 1) return walk.keep_all(x, "its input's channels are not dimension 1");
  if (a.indices) return walk.keep_all(x, "its indices count channels");
  const auto any = [&](const auto& of, std::int64_t other) {
    return !a.global && std::any_of(of.begin(), of.end(), [&](std::int64_t n) { return n != other; });
  };
  const bool padded = any(a.window.pad_begin, 0) || any(a.window.pad_end, 0);
  // A dilated window may lie in the padding with all of its taps.
  const bool empty_windows = padded && any(a.window.dilation, 1);
  walk.set(node.outputs[0], walk.mapped(x, 1, [&](std::size_t, double rest) {
    if (a.kind == PoolKind::max) return empty_windows ? ChannelWalk::kVaries : rest;
    if (rest == 0) return rest;
    return a.kind == PoolKind::average && !(padded && a.count_include_pad) && !empty_windows
               ? rest
               : ChannelWalk::kVaries;
  }));
}

void tie_reduce(ChannelWalk& walk, const Node& node, const ReduceAttributes& a) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const Shape& shape = walk.shape(node.inputs[0]);
  const std::array<bool, kMaxRank> reduced = reduced_dims(a, shape);
  const bool sum = a.kind == ReduceKind::sum || a.kind == ReduceKind::l1 || a.kind == ReduceKind::l2 ||
                   a.kind == ReduceKind::sum_square;
  if (reduced[static_cast<std::size_t>(x.axis)]) {
    if (!sum) return walk.keep_all(x, "it reduces over channels");
    for (std::size_t i = 0; i < x.size(); ++i) {  // zeros change no sum
      if (x.rest_of(i) != 0) walk.keep((*x.groups)[i], "it adds channels up, and this one would not be zero");
    }
    return;
  }
  int axis = x.axis;
  for (int d = 0; d < x.axis; ++d) axis -= !a.keep_dims && reduced[static_cast<std::size_t>(d)] ? 1 : 0;
  const bool same = a.kind == ReduceKind::mean || a.kind == ReduceKind::max || a.kind == ReduceKind::min;
  walk.set(node.outputs[0], walk.mapped(x, axis, [&](std::size_t, double rest) {
    return same || (rest == 0 && (sum || a.kind == ReduceKind::prod)) ? rest : ChannelWalk::kVaries;
  }));
}

void tie_resize(ChannelWalk& walk, const Node& node, const ResizeAttributes& a) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  if (a.scales[static_cast<std::size_t>(x.axis)] != 1 ||
      resizes_axis(a, x.axis, walk.shape(node.inputs[0])[x.axis]))
    return walk.keep_all(x, "it resizes the channels");
  walk.set(node.outputs[0], x);
}

void tie_pad(ChannelWalk& walk, const Node& node, const PadAttributes& a) {
  const ValueChannels& x = walk.of(node.inputs[0]);
  if (!x.known()) return;
  const auto axis = static_cast<std::size_t>(x.axis);
  if (a.begin[axis] != 0 || a.end[axis] != 0) return walk.keep_all(x, "it pads the channels");
  const auto adds = [](std::int64_t n) { return n > 0; };
  const bool filled = a.mode == PadMode::constant && (std::any_of(a.begin.begin(), a.begin.end(), adds) ||
                                                      std::any_of(a.end.begin(), a.end.end(), adds));
  walk.set(node.outputs[0], walk.mapped(x, x.axis, [&](std::size_t, double rest) {
    return filled && rest != a.value ? ChannelWalk::kVaries : rest;
  }));
}

}  // namespace

bool tie_spatial_layer(ChannelWalk& walk, const Node& node) {
  if (walk.graph().value(node.outputs[0]).desc.dtype != DType::f32) return false;
  if (layer_if<BatchNorm>(node) != nullptr) {
    tie_norm(walk, node);
  } else if (const auto* norm = layer_if<InstanceNorm>(node);
             norm != nullptr && norm->attributes().epsilon > 0 && norm->attributes().groups == 0) {
    tie_norm(walk, node);
  } else if (const auto* pool = layer_if<Pool>(node)) {
    tie_pool(walk, node, pool->attributes());
  } else if (const auto* reduce = layer_if<Reduce>(node)) {
    tie_reduce(walk, node, reduce->attributes());
  } else if (const auto* resize = layer_if<Resize>(node)) {
    tie_resize(walk, node, resize->attributes());
  } else if (const auto* pad = layer_if<Pad>(node)) {
    tie_pad(walk, node, pad->attributes());
  } else if (layer_if<LayerNorm>(node) != nullptr || layer_if<Lrn>(node) != nullptr ||
             layer_if<Softmax>(node) != nullptr) {
    walk.keep_inputs(node, kMixes);
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal
