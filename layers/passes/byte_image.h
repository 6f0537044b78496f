// Images that a graph gets as bytes, and normalizes itself.
#pragma once

#include "layers/ops/normalize_image.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

/// Whether the value is an image as a user gives it: an input of the graph, or what NormalizeImage makes of one. Passes
/// leave it in f32 and as it lies where the first convolution reads it.
bool is_user_image(const Graph& graph, int producer, ValueId id);
inline bool is_user_image(const Rewriter& rewriter, ValueId id) {
  return is_user_image(rewriter.source(), rewriter.producer(id), id);
}

/// The graph, as it was read, with bytes instead of its one input of floats: u8 [N, H, W, C], and a NormalizeImage
/// that makes of them with `table` (f32, [C, 256]) what the input was and what keeps its name. The new input is called
/// after it, with kByteImageSuffix. Throws Error where the graph has another number of inputs, or one that is not such
/// an image.
Graph with_byte_image(const Graph& graph, const NormalizeImageAttributes& attributes, Tensor table);

inline constexpr const char* kByteImageSuffix = ".u8";

}  // namespace pipit::internal
