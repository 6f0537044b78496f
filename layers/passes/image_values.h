// Values that will be channels_last.
#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace pipit::internal {

/// Per value: whether the layers that make it will have it channels_last once layouts are assigned (assign_layouts). Of
/// others a layer that prefers that order would read a copy.
std::vector<bool> image_values(const Graph& graph);
/// The same of what one node makes, by those of its inputs.
bool makes_image(const Node& node, const std::vector<bool>& images);

}  // namespace pipit::internal
