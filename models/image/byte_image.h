// Models that get images as bytes and normalize them on their device: a quarter of the floats that cross the bus.
#pragma once

#include "engine/graph/graph.h"
#include "models/image/preprocess.h"

namespace pipit::internal {

/// The graph of a model, as it was read, that takes what resize_to_bytes() makes of images, u8 [N, H, W, C], instead
/// of what preprocess() makes of them. Its results are the same bits: the table that maps bytes to floats is
/// normalization_table(). Throws Error where its input is no image of 1 or 3 channels in f32.
Graph with_byte_image(const Graph& graph, const Preprocess& preprocess);

}  // namespace pipit::internal
