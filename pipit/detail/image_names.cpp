#include "pipit/detail/image_names.h"

#include <algorithm>

#include "engine/base/printable.h"

namespace pipit::internal::detail {

namespace {

namespace fs = std::filesystem;

fs::path shared_start(const fs::path& a, const fs::path& b) {
  fs::path shared;
  const auto end = std::ranges::mismatch(a, b).in1;
  for (auto part = a.begin(); part != end; ++part) shared /= *part;
  return shared;
}

}  // namespace

ImageNames::ImageNames(std::span<const fs::path> given) {
  for (const fs::path& path : given) {
    std::error_code ignored;
    const bool folder = fs::is_directory(path, ignored);
    // A link to an image is called as it is, not as what it leads to.
    const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    fs::path place = folder ? fs::canonical(path, ignored)
                            : fs::weakly_canonical(fs::absolute(parent, ignored), ignored) / path.filename();
    const fs::path around = folder ? place : place.parent_path();
    folder_ = given_.empty() ? around : shared_start(folder_, around);
    given_.emplace_back(path, std::move(place));
  }
}

std::string ImageNames::of(const fs::path& image) const {
  fs::path whole = image;
  std::ptrdiff_t longest = -1;
  for (const auto& [path, place] : given_) {
    const auto [in_path, below] = std::ranges::mismatch(path, image);
    // "folder/" ends with an empty part.
    if (in_path != path.end() && !(in_path->empty() && std::next(in_path) == path.end())) continue;
    // "set/a/../b" is below "set" by its name only.
    const std::ptrdiff_t parts = std::distance(image.begin(), below);
    if (parts <= longest) continue;
    longest = parts;
    whole = place;
    for (auto part = below; part != image.end(); ++part) whole /= *part;
  }
  return printable_key(whole.lexically_relative(folder_).string());
}

}  // namespace pipit::internal::detail
