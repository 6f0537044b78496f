#include "pipit/measuring/judged_images.h"

#include <algorithm>
#include <set>

#include "engine/base/file.h"
#include "pipit/measuring/image_truth.h"
#include "pipit/measuring/runner.h"
#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

std::set<std::uintmax_t> sizes_of(const std::vector<LabelledImage>& images) {
  std::set<std::uintmax_t> sizes;
  for (const LabelledImage& image : images) sizes.insert(size_of(image.path));
  return sizes;
}

// How many of the images are files of the same bytes as one of the others.
std::int64_t count_copies(const std::vector<LabelledImage>& images,
                          const std::vector<LabelledImage>& others) {
  const std::set<std::uintmax_t> sizes = sizes_of(images), other_sizes = sizes_of(others);
  std::set<std::string> known;
  for (const LabelledImage& other : others) {
    if (sizes.contains(size_of(other.path))) known.insert(content_hash(other.path));
  }
  known.erase(std::string());  // cannot be read
  return std::ranges::count_if(images, [&](const LabelledImage& image) {
    return other_sizes.contains(size_of(image.path)) && known.contains(content_hash(image.path));
  });
}

}  // namespace

std::vector<std::filesystem::path> paths_of(const std::vector<LabelledImage>& images) {
  std::vector<std::filesystem::path> paths;
  for (const LabelledImage& image : images) paths.push_back(image.path);
  return paths;
}

std::vector<int> labels_of(const std::vector<LabelledImage>& images) {
  std::vector<int> labels;
  for (const LabelledImage& image : images) labels.push_back(image.label);
  return labels;
}

LabelledImages images_to_judge(const std::filesystem::path& folder, JudgeBy judge_by, const Labels& labels,
                               const ClassOutput& output, std::int64_t limit, const std::string& otherwise) {
  LabelledImages found;
  if (judge_by == JudgeBy::labels) {
    try {
      found = list_labelled_images(folder, labels, static_cast<int>(output.classes));
    } catch (const Error& e) {
      if (!is_folder(folder)) throw;
      fail("{} (images without classes: {})", e.what(), otherwise);
    }
  } else {
    ImageFiles files = list_images(folder);
    for (std::filesystem::path& path : files.paths) found.images.push_back({std::move(path), 0});
    found.left_out = std::move(files.left_out);
  }
  found.images = spread(std::move(found.images), limit);
  return found;
}

void drop_unreadable(std::vector<LabelledImage>& images, const PreparedImages& prepared,
                     std::vector<UnreadableImage>& unreadable) {
  const std::vector<UnreadableImage>& excluded = prepared.unreadable();
  std::set<std::filesystem::path> paths;
  for (const UnreadableImage& image : excluded) paths.insert(image.path);
  std::erase_if(images, [&](const LabelledImage& image) { return paths.contains(image.path); });
  for (const UnreadableImage& known : unreadable) paths.erase(known.path);
  for (const UnreadableImage& image : excluded) {
    if (paths.contains(image.path)) unreadable.push_back(image);
  }
}

ImageSplit split_images(const std::vector<LabelledImage>& images, const QuantizationPlan* plan) {
  std::set<std::string> known;
  if (plan != nullptr) {
    for (const CalibrationImage& image : plan->images) known.insert(image.hash);
  }
  ImageSplit split;
  std::size_t position = 0;
  for (const LabelledImage& image : images) {
    const bool calibrated = !known.empty() && known.contains(content_hash(image.path));
    const bool search = calibrated || position++ % 2 == 0;
    (search ? split.search : split.unseen).push_back(image);
  }
  if (split.search.empty() || split.unseen.empty())
    fail("{}{}: too few to choose on some and to check on others", counted(std::ssize(images), "image"),
         plan == nullptr ? "" : fmt::format(", {} of them new to the plan", split.unseen.size()));
  return split;
}

std::string copies_note(const ImageSplit& split, const std::string& unseen, const std::string& done) {
  const std::int64_t copies = count_copies(split.unseen, split.search);
  if (copies == 0) return {};
  return fmt::format(
      "{} of the {} images {} {} among those that {}, which says too little of others: check on images of "
      "their own",
      copies, split.unseen.size(), unseen, copies == 1 ? "is" : "are", done);
}

}  // namespace pipit::internal::detail
