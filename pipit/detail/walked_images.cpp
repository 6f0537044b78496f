#include "pipit/detail/walked_images.h"

#include <algorithm>

#include "engine/base/error.h"
#include "sparsity/layer_walk.h"

namespace pipit::internal::detail {

std::int64_t walkable_images(const Graph& graph, std::int64_t batch) {
  const std::size_t each = walk_bytes(graph) / static_cast<std::size_t>(batch);
  return std::max(static_cast<std::int64_t>(kWalkBytes / std::max<std::size_t>(1, each)), batch);
}

std::vector<Tensor> read_runs(PreparedImages& images) {
  std::vector<Tensor> runs;
  images.for_each_batch([&](std::span<const ConstTensorView> batch, std::int64_t, std::int64_t count) {
    if (batch[0].desc.shape[0] == count) runs.push_back(to_layout(batch[0], Layout::row_major));
  });
  if (runs.empty()) fail("{} images do not fill one batch of the model", images.size());
  return runs;
}

}  // namespace pipit::internal::detail
