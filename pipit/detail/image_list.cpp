#include "pipit/detail/image_list.h"

#include <set>
#include <string>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "pipit/detail/image_names.h"

namespace pipit::internal::detail {

namespace fs = std::filesystem;

ImageList list_given(std::span<const fs::path> given, bool strict) {
  ImageList images;
  const ImageNames names(given);
  std::set<std::string> seen;
  for (const fs::path& path : given) {
    ImageFiles found;
    if (given.size() > 1 && is_folder(path)) {
      add_images(found, path);
    } else {
      found = list_images(path);
    }
    for (fs::path& image : found.paths) {
      if (seen.insert(names.of(image)).second) {
        images.files.paths.push_back(std::move(image));
      } else {
        ++images.repeated;
      }
    }
    images.files.left_out.add(found.left_out);
  }
  if (strict || images.files.paths.empty()) images.files.left_out.end_at_folders();
  if (images.files.paths.empty()) throw ArgumentError(fmt::format("no images are given"));
  return images;
}

std::vector<tools::ExcludedImage> excluded_images(const LeftOut& left_out,
                                                  const std::vector<UnreadableImage>& unreadable) {
  std::vector<tools::ExcludedImage> excluded;
  for (const UnreadableImage& one : left_out.folders) excluded.push_back({one.path, one.error, true});
  for (const UnreadableImage& one : unreadable) excluded.push_back({one.path, one.error, false});
  return excluded;
}

}  // namespace pipit::internal::detail
