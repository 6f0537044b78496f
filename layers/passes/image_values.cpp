#include "layers/passes/image_values.h"

#include <algorithm>

namespace pipit::internal {

bool makes_image(const Node& node, const std::vector<bool>& images) {
  const LayoutPreference preference = node.layer->layout_preference();
  const auto is_image = [&](ValueId id) { return id != kNoValue && images[static_cast<std::size_t>(id)]; };
  return preference == LayoutPreference::channels_last ||
         (preference == LayoutPreference::any && std::ranges::any_of(node.inputs, is_image));
}

std::vector<bool> image_values(const Graph& graph) {
  std::vector<bool> images(graph.values().size(), false);
  for (const Node& node : graph.nodes()) {
    const bool image = makes_image(node, images);
    for (const ValueId id : node.outputs) images[static_cast<std::size_t>(id)] = image;
  }
  return images;
}

}  // namespace pipit::internal
