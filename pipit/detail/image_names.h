// What a quantization plan calls the images that it was calibrated on.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pipit::internal::detail {

/// Images by their paths below the deepest folder that holds all that was given: two entries of a file system never
/// share a name, however many folders there are and whatever bytes names are made of.
class ImageNames {
 public:
  /// `given`: images, or folders of them.
  explicit ImageNames(std::span<const std::filesystem::path> given);
  /// In UTF-8, as printable_key() writes it. `image` is one of those given, or lies below one.
  std::string of(const std::filesystem::path& image) const;

 private:
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> given_;  // and where it lies
  std::filesystem::path folder_;
};

}  // namespace pipit::internal::detail
