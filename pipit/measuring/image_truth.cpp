#include "pipit/measuring/image_truth.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "models/image/folder.h"
#include "models/image/format.h"
#include "pipit/text.h"
#include "quant/hash.h"

namespace pipit::internal::detail {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTruthBytes = std::uint64_t{256} << 20;

// Text from a file that may hold anything: escaped, at most 80 bytes.
std::string short_text(const std::string& text) {
  constexpr std::size_t kMax = 80;
  return printable(text.substr(0, kMax)) + (text.size() > kMax ? "..." : "");
}

void sort_out(std::vector<int>& classes) {
  std::ranges::sort(classes);
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
}

// One image for files of the same bytes, at the place of the first.
std::vector<TruthImage> joined(std::vector<TruthImage> images) {
  std::map<std::uintmax_t, int> sizes;
  for (const TruthImage& image : images) ++sizes[size_of(image.path)];
  std::map<std::string, std::size_t> known;  // position in `kept`, by content
  std::vector<TruthImage> kept;
  for (TruthImage& image : images) {
    if (sizes[size_of(image.path)] > 1) {
      const std::string hash = content_hash(image.path);
      const auto [found, added] = known.emplace(hash, kept.size());
      if (!added && !hash.empty()) {
        std::vector<int>& classes = kept[found->second].classes;
        classes.insert(classes.end(), image.classes.begin(), image.classes.end());
        continue;
      }
    }
    kept.push_back(std::move(image));
  }
  for (TruthImage& image : kept) sort_out(image.classes);
  return kept;
}

// An image that is named is not left out: reading it says what is wrong.
void take_out(LeftOut& left_out, const fs::path& image) {
  if (counts_as_image(image)) return;
  const auto format = image_format_of(image);
  const auto found = left_out.formats.find(std::string(format.value_or("")));
  if (found != left_out.formats.end() && --found->second == 0) left_out.formats.erase(found);
}

// The lines of a file of classes.
class TruthFile {
 public:
  TruthFile(const std::string& name, const Labels& labels, const ClassOutput& output)
      : name_(name), labels_(labels), output_(output) {}

  std::vector<TruthImage> read(const fs::path& folder) {
    const std::string content = read_file(name_, kMaxTruthBytes);
    std::string_view rest = content;
    if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
    std::vector<TruthImage> images;
    std::set<fs::path> known;
    while (!rest.empty()) {
      ++line_;
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t") == line.npos || (line_ == 1 && line == "image,classes")) continue;
      TruthImage image;
      const std::string named = first_field(line);
      const fs::path inside = fs::path(named).lexically_normal();
      if (inside.empty() || inside.is_absolute() || *inside.begin() == "..")
        fail("{}: '{}' is not a path below {}", place(), short_text(named), folder.string());
      image.path = (folder / inside).lexically_normal();
      std::error_code ignored;
      if (!fs::is_regular_file(image.path, ignored))
        fail("{}: there is no image {}", place(), image.path.string());
      if (!known.insert(image.path).second)
        fail("{}: {} is named a second time", place(), image.path.string());
      image.classes = classes_of(field(line));
      if (!line.empty()) fail("{}: more than two columns, an image and its classes", place());
      images.push_back(std::move(image));
    }
    if (images.empty()) fail("{}: it names no image", name_);
    std::ranges::sort(images, {}, &TruthImage::path);
    return images;
  }

 private:
  std::string place() const { return fmt::format("{}:{}", name_, line_); }

  std::string first_field(std::string_view& line) const {
    const char* const end = line.data() + line.size();
    std::string text = field(line);
    // An image of no class has a comma at the end.
    if (line.data() == end && end[-1] != ',')
      fail("{}: a comma is missing after '{}'", place(), short_text(text));
    return text;
  }

  // Removes the first field and its comma from a line, and returns the field.
  std::string field(std::string_view& line) const {
    std::string text;
    if (!line.starts_with('"')) {
      const std::size_t end = std::min(line.find(','), line.size());
      text = line.substr(0, end);
      line.remove_prefix(std::min(end + 1, line.size()));
      return text;
    }
    std::size_t at = 1;
    for (;; ++at) {
      if (at >= line.size()) fail("{}: a quote is not closed", place());
      if (line[at] == '"' && !line.substr(at + 1).starts_with('"')) break;
      if (line[at] == '"') ++at;
      text += line[at];
    }
    line.remove_prefix(at + 1);
    if (!line.empty() && line[0] != ',') fail("{}: a comma is missing after a quote", place());
    line.remove_prefix(std::min<std::size_t>(1, line.size()));
    return text;
  }

  int class_of(std::string_view name) {
    const std::string text(name);
    const auto known = known_.find(text);
    if (known != known_.end()) return known->second;
    std::optional<int> found = find_label(labels_, text);
    int index = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (!found && error == std::errc{} && stop == text.data() + text.size()) found = index;
    if (!found || *found < 0 || *found >= output_.classes) {
      fail("{}: '{}' is none of the model's {} classes{}", place(), short_text(text), output_.classes,
           labels_.empty() ? ", which have no names here; --labels names them" : "");
    }
    known_.emplace(text, *found);
    return *found;
  }

  std::vector<int> classes_of(std::string_view text) {
    std::vector<int> classes;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(';'), text.size());
      std::string_view name = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      while (name.starts_with(' ')) name.remove_prefix(1);
      while (name.ends_with(' ')) name.remove_suffix(1);
      if (!name.empty()) classes.push_back(class_of(name));
    }
    sort_out(classes);
    if (classes.empty() && output_.yes_or_no()) return {0};
    if (classes.size() == 1 || output_.are_tags()) return classes;
    const std::string why =
        output_.yes_or_no()
            ? "the model says yes or no"
            : fmt::format(
                  "one class is right where scores are {}; --scores sigmoid or sigmoid-logits "
                  "say that any number may be",
                  score_kind_name(output_.kind));
    throw ArgumentError(fmt::format("{}: an image of {} classes, but {}", place(), classes.size(), why));
  }

  const std::string& name_;
  const Labels& labels_;
  const ClassOutput& output_;
  std::int64_t line_ = 0;
  std::map<std::string, int> known_;  // classes by name
};

}  // namespace

std::string content_hash(const fs::path& path) {
  try {
    return hash_file(path);
  } catch (const Error&) {
    return {};
  }
}

std::uintmax_t size_of(const fs::path& path) {
  std::error_code ignored;
  return fs::file_size(path, ignored);
}

ImageTruth read_truth(const std::string& folder, const Labels& labels, const ClassOutput& output) {
  ImageTruth truth;
  try {
    LabelledImages found = list_labelled_images(folder, labels, static_cast<int>(output.classes));
    truth.left_out = std::move(found.left_out);
    for (LabelledImage& image : found.images) truth.images.push_back({std::move(image.path), {image.label}});
  } catch (const Error& e) {
    if (!output.yes_or_no() || !is_folder(folder)) throw;
    fail("{} (the model says yes or no: --labels names no and yes, in this order; --truth takes a CSV file)",
         e.what());
  }
  if (output.are_tags()) truth.images = joined(std::move(truth.images));
  return truth;
}

ImageTruth read_truth(const std::string& folder, const std::string& csv, const Labels& labels,
                      const ClassOutput& output) {
  ImageTruth truth;
  truth.images = TruthFile(csv, labels, output).read(folder);
  std::set<fs::path> named;
  for (const TruthImage& image : truth.images) named.insert(image.path);
  ImageFiles found = list_images(folder);
  truth.left_out = std::move(found.left_out);
  for (const TruthImage& image : truth.images) take_out(truth.left_out, image.path);
  for (const fs::path& path : found.paths) truth.unnamed += named.contains(path.lexically_normal()) ? 0 : 1;
  return truth;
}

}  // namespace pipit::internal::detail
