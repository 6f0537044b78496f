// Arrays as NumPy saves them.
#pragma once

#include <filesystem>
#include <string_view>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// Whether the content of a file begins like one of numpy.save().
bool is_npy(std::string_view content);

/// The array of such a file, form versions 1 to 3 (numpy.lib.format), row-major f32. Throws Error, beginning with
/// `path`, for a damaged file, and for other types and orders, with what to save instead.
Tensor parse_npy(std::string_view content, const std::filesystem::path& path);

}  // namespace pipit::internal
