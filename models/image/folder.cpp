#include "models/image/folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <system_error>

#include "engine/base/error.h"
#include "models/image/format.h"

namespace pipit::internal {
namespace {

namespace fs = std::filesystem;

bool has_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::array<std::string_view, 7> kNames = {".jpg", ".jpeg", ".jpe", ".jfif",
                                                      ".png", ".bmp",  ".webp"};
  return std::ranges::find(kNames, extension) != kNames.end();
}

// Whether files of this format are read. What claims to be an image by its name alone would change in silence what is
// measured over the folder, so it is read, and reading fails.
bool is_read(const std::optional<std::string_view>& format, const fs::path& path) {
  return format && !format->empty() ? reads_format(*format) : has_image_name(path);
}

std::string counts_of(const LeftOut& left_out) {
  std::string text;
  for (const auto& [format, count] : left_out.formats)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, format);
  return text;
}

class Lister {
 public:
  ImageFiles run(const fs::path& folder) {
    // Links wait until all real folders are known, or a folder could be found under a link's name.
    std::vector<fs::path> pending = {folder};
    while (!pending.empty()) {
      links_.clear();
      while (!pending.empty()) {
        const fs::path next = std::move(pending.back());
        pending.pop_back();
        try {
          if (visited_.insert(canonical(next)).second) list(next, pending);
        } catch (const Error& e) {
          if (next == folder) throw;
          found_.left_out.folders.push_back({next, e.what()});
        }
      }
      std::sort(links_.rbegin(), links_.rend());
      pending = links_;
    }
    if (found_.paths.empty() && found_.left_out.formats.empty()) found_.paths = std::move(arrays_);
    std::sort(found_.paths.begin(), found_.paths.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    std::ranges::sort(found_.left_out.folders, {}, &UnreadableImage::error);
    return std::move(found_);
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
      } else {
        add(path);
      }
    }
    if (error) fail("{}: the folder cannot be read: {}", folder.string(), error.message());
  }

  void add(const fs::path& path) {
    if (is_array_file(path)) return arrays_.push_back(path);
    const std::optional<std::string_view> format = image_format_of(path);
    if (is_read(format, path)) {
      found_.paths.push_back(path);
    } else if (format && !format->empty()) {
      ++found_.left_out.formats[std::string(*format)];
    }
  }

  std::set<fs::path> visited_;
  std::vector<fs::path> links_;
  std::vector<fs::path> arrays_;
  ImageFiles found_;
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

// What is wrong with the first few.
std::string errors_of(const std::vector<UnreadableImage>& all) {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kNamed); ++i) text += (i == 0 ? "" : "; ") + all[i].error;
  if (all.size() > kNamed) text += fmt::format("; and {} more", all.size() - kNamed);
  return text;
}

}  // namespace

void LeftOut::add(const LeftOut& other) {
  for (const auto& [format, count] : other.formats) formats[format] += count;
  folders.insert(folders.end(), other.folders.begin(), other.folders.end());
}

void LeftOut::end_at_folders() const {
  if (!folders.empty()) fail("{}", folders[0].error);
}

std::string left_out_note(const LeftOut& left_out) {
  std::string text;
  std::int64_t total = 0;
  for (const auto& [format, count] : left_out.formats) total += count;
  if (total > 0)
    text = fmt::format("{} left out, of formats that are not read: {}; convert them to {}",
                       total == 1 ? "1 image is" : fmt::format("{} images are", total), counts_of(left_out),
                       formats_read());
  if (left_out.folders.empty()) return text;
  return fmt::format(
      "{}{}{} left out: {}", text, text.empty() ? "" : ". ",
      left_out.folders.size() == 1 ? "1 folder is" : fmt::format("{} folders are", left_out.folders.size()),
      errors_of(left_out.folders));
}

std::string unreadable_note(const std::vector<UnreadableImage>& images, std::int64_t total) {
  if (images.empty()) return {};
  return fmt::format("{} of {} images cannot be used and {} excluded: {}", images.size(), total,
                     images.size() == 1 ? "is" : "are", errors_of(images));
}

bool is_array_file(const fs::path& file) {
  return file.extension() == ".npy" || file.extension() == ".npz";
}

bool counts_as_image(const fs::path& file) {
  return is_read(image_format_of(file), file);
}

ImageFiles list_images(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) fail("{}: no such file or folder", folder.string());
  if (error) fail("{}: {}", folder.string(), error.message());
  if (!fs::is_directory(status)) {
    if (!fs::is_regular_file(status)) fail("{}: is neither a folder nor a regular file", folder.string());
    if (counts_as_image(folder) || is_array_file(folder)) return {{folder}, {}};
    if (const auto format = image_format_of(folder); format && !format->empty())
      fail("{}: {} is not read; convert it to {}", folder.string(), *format, formats_read());
    fail("{}: is neither a folder nor a {} image", folder.string(), formats_read());
  }
  ImageFiles found = Lister().run(folder);
  if (!found.paths.empty()) return found;
  found.left_out.end_at_folders();
  if (!found.left_out.empty())
    fail("{}: no {} image is in or below it, but others that are not read: {}; convert them", folder.string(),
         formats_read(), counts_of(found.left_out));
  fail("{}: there is no {} image in or below it", folder.string(), formats_read());
}

void add_images(ImageFiles& files, const fs::path& folder) {
  try {
    const ImageFiles found = list_images(folder);
    files.paths.insert(files.paths.end(), found.paths.begin(), found.paths.end());
    files.left_out.add(found.left_out);
  } catch (const Error& e) {
    files.left_out.folders.push_back({folder, e.what()});
  }
}

LabelledImages list_labelled_images(const fs::path& folder, const Labels& labels, int classes) {
  const int limit = classes > 0 ? classes : static_cast<int>(labels.size());
  ImageFiles found = list_images(folder);
  const std::vector<fs::path>& images = found.paths;
  FolderClasses by_label(labels);
  bool numbered = true;  // no folder is a label, each that holds images is a number
  for (const fs::path& path : images) {
    const std::vector<std::string> names = folders_of(path, folder);
    numbered = numbered && (names.empty() || (!by_label.of(names) && number_of(names.back())));
  }
  LabelledImages out;
  out.left_out = std::move(found.left_out);
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
    out.images.push_back({path, *label});
  }
  return out;
}

}  // namespace pipit::internal
