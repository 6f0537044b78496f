// The images that a caller gives: files and folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "models/image/folder.h"
#include "pipit/accuracy.h"

namespace pipit::internal::detail {

struct ImageList {
  ImageFiles files;
  std::int64_t repeated = 0;  ///< given twice, and in `files` once
};

/// The files that are given, and those below folders that are. Throws Error where there are none; with `strict` for a
/// folder that cannot be read.
ImageList list_given(std::span<const std::filesystem::path> given, bool strict);

/// Both, as results have them.
std::vector<tools::ExcludedImage> excluded_images(const LeftOut& left_out,
                                                  const std::vector<UnreadableImage>& unreadable);

}  // namespace pipit::internal::detail
