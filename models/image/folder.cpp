#include "models/image/folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <system_error>

#include "engine/base/error.h"

namespace pipit {
namespace {

namespace fs = std::filesystem;

class Lister {
 public:
  std::vector<fs::path> run(const fs::path& folder) {
    // Links wait until all real folders are known, or a folder could be found under a link's name.
    std::vector<fs::path> pending = {folder};
    while (!pending.empty()) {
      links_.clear();
      while (!pending.empty()) {
        const fs::path next = std::move(pending.back());
        pending.pop_back();
        if (visited_.insert(canonical(next)).second) list(next, pending);
      }
      std::sort(links_.rbegin(), links_.rend());
      pending = links_;
    }
    std::sort(images_.begin(), images_.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    return std::move(images_);
  }

 private:
  static fs::path canonical(const fs::path& path) {
    std::error_code error;
    fs::path out = fs::canonical(path, error);
    if (error) fail("{}: {}", path.string(), error.message());
    return out;
  }

  void list(const fs::path& folder, std::vector<fs::path>& pending) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const fs::path& path = it->path();
      if (path.filename().native().starts_with('.')) continue;
      std::error_code link_error;
      const fs::file_status status = fs::status(path, link_error);
      if (fs::is_directory(status)) {
        (it->is_symlink(link_error) ? links_ : pending).push_back(path);
      } else if (has_image_extension(path)) {
        // Left out in silence it would change what is measured over the folder.
        if (!fs::is_regular_file(status)) {
          fail("{}: {}", path.string(),
               link_error ? link_error.message() : "a broken link or not a regular file");
        }
        images_.push_back(path);
      }
    }
    if (error) fail("{}: the folder cannot be read: {}", folder.string(), error.message());
  }

  std::set<fs::path> visited_;
  std::vector<fs::path> links_;
  std::vector<fs::path> images_;
};

std::vector<std::string> folders_of(const fs::path& image, const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::path& part : image.lexically_relative(root).parent_path()) names.push_back(part.string());
  return names;
}

// The whole name as a class index: "7", "007".
std::optional<int> number_of(const std::string& name) {
  if (name.empty() || name[0] == '-') return std::nullopt;
  int index = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, index);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return index;
}

// Matches each folder name once; a folder has thousands of images.
class FolderClasses {
 public:
  explicit FolderClasses(const Labels& labels) : labels_(labels) {}

  // `names`: the folders that an image lies in, outermost first.
  std::optional<int> of(const std::vector<std::string>& names) {
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      auto known = known_.find(*name);
      if (known == known_.end()) known = known_.emplace(*name, find_label(labels_, *name)).first;
      if (known->second) return known->second;
    }
    return std::nullopt;
  }

 private:
  const Labels& labels_;
  std::map<std::string, std::optional<int>> known_;
};

}  // namespace

bool has_image_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".bmp";
}

std::vector<fs::path> list_images(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) fail("{}: no such file or folder", folder.string());
  if (error) fail("{}: {}", folder.string(), error.message());
  if (!fs::is_directory(status)) {
    if (fs::is_regular_file(status) && has_image_extension(folder)) return {folder};
    fail("{}: is neither a folder nor a .jpg, .jpeg, .png or .bmp file", folder.string());
  }
  std::vector<fs::path> images = Lister().run(folder);
  if (images.empty()) fail("{}: there is no .jpg, .jpeg, .png or .bmp file in or below it", folder.string());
  return images;
}

std::vector<LabelledImage> list_labelled_images(const fs::path& folder, const Labels& labels, int classes) {
  const int limit = classes > 0 ? classes : static_cast<int>(labels.size());
  const std::vector<fs::path> images = list_images(folder);
  FolderClasses by_label(labels);
  bool numbered = true;  // no folder is a label, each that holds images is a number
  for (const fs::path& path : images) {
    const std::vector<std::string> names = folders_of(path, folder);
    numbered = numbered && (names.empty() || (!by_label.of(names) && number_of(names.back())));
  }
  std::vector<LabelledImage> out;
  for (const fs::path& path : images) {
    const std::vector<std::string> names = folders_of(path, folder);
    std::optional<int> label = by_label.of(names);
    if (!label && numbered && !names.empty()) label = number_of(names.back());
    // Without labels a folder's name cannot be told from a class's, and then it, not the file's, is the class.
    if (!label && labels.empty() && !names.empty()) {
      fail(
          "{}: no class is known for this image: it lies in folder '{}', but there are no labels to find "
          "that "
          "name in; use --labels",
          path.string(), names.back());
    }
    if (!label) label = class_from_filename(path.filename().string());
    if (!label) {
      fail(
          "{}: no class is known for this image: {}let its file name begin with the class index and '_' "
          "(0007_{})",
          path.string(),
          labels.empty()
              ? ""
              : fmt::format("put it in a folder named like one of the {} labels (such as '{}'), or ",
                            labels.size(), labels[0]),
          path.filename().string());
    }
    if (limit > 0 && *label >= limit) {
      fail("{}: its class index {} is not below the number of classes, {}", path.string(), *label, limit);
    }
    out.push_back({path, *label});
  }
  return out;
}

}  // namespace pipit
