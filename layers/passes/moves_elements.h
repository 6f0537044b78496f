// Layers that hand on integers as they are: the quantization of what they read is that of what they write.
#pragma once

#include "engine/graph/graph.h"

namespace pipit::internal {

/// The elements of one tensor in other places.
inline bool rearranges(const Node& node) {
  return node.layer->traits().movement == Movement::rearranged;
}

/// These, and layers that repeat or select elements. A Pad by a constant adds elements of that value.
inline bool moves_elements(const Node& node) {
  return node.layer->traits().movement != Movement::none;
}

}  // namespace pipit::internal
