// Images for walk_layers() (sparsity/layer_walk.h), which holds what lies between layers for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"
#include "models/prepared_images.h"

namespace pipit::internal::detail {

/// A limit of the values that walk_layers() holds; the sums of a layer of depth 4608 need about 0.7 GiB more.
inline constexpr std::size_t kWalkBytes = std::size_t{1900} << 20;

/// How many images of a model that runs `batch` at a time fit kWalkBytes; at least one batch.
std::int64_t walkable_images(const Graph& graph, std::int64_t batch);

/// Copies of the batches of `images` that are full. Throws Error where there is none.
std::vector<Tensor> read_runs(PreparedImages& images);

}  // namespace pipit::internal::detail
