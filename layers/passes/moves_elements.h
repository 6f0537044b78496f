// Layers that hand on integers as they are: the quantization of what they read is that of what they write.
#pragma once

#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"

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
