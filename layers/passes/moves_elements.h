// Layers that hand on integers as they are: the quantization of what they read is that of what they write.
#pragma once

#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"

namespace pipit {

/// The elements of one tensor in other places: Reshape, Transpose, Slice, Split, DepthToSpace.
inline bool rearranges(const Node& node) {
  return layer_if<Reshape>(node) || layer_if<Transpose>(node) || layer_if<Slice>(node) ||
         layer_if<Split>(node) || layer_if<DepthToSpace>(node);
}

/// Elements of input 0, some of them several times or not at all: Tile, Expand, Gather, Resize to the nearest.
inline bool repeats(const Node& node) {
  const auto* resize = layer_if<Resize>(node);
  return (resize != nullptr && resize->attributes().mode == ResizeMode::nearest) || layer_if<Tile>(node) ||
         layer_if<Expand>(node) || layer_if<Gather>(node);
}

/// All of these, max pools without indices, and Pad. A Pad by a constant adds elements of that value.
inline bool moves_elements(const Node& node) {
  const auto* pool = layer_if<Pool>(node);
  const bool max_pool =
      pool != nullptr && pool->attributes().kind == PoolKind::max && !pool->attributes().indices;
  return max_pool || layer_if<Pad>(node) || rearranges(node) || repeats(node);
}

}  // namespace pipit
