// Layers that hand on integers as they are: the quantisation of what they read is that of what they write.
#pragma once

#include "layers/arrange.h"
#include "layers/fuse/rewriter.h"
#include "layers/pool.h"
#include "layers/rearrange.h"

namespace pipit {

/// The elements of one tensor in other places: Reshape, Transpose, Slice, Split, DepthToSpace.
inline bool rearranges(const Node& node) {
  return layer_if<Reshape>(node) || layer_if<Transpose>(node) || layer_if<Slice>(node) ||
         layer_if<Split>(node) || layer_if<DepthToSpace>(node);
}

/// These, max pools without indices, and Pad. A Pad by a constant adds elements of that value.
inline bool moves_elements(const Node& node) {
  const auto* pool = layer_if<Pool>(node);
  const bool max_pool =
      pool != nullptr && pool->attributes().kind == PoolKind::max && !pool->attributes().indices;
  return max_pool || layer_if<Pad>(node) || rearranges(node);
}

}  // namespace pipit
