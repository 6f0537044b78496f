#include "apps/measuring/judged_images.h"

#include <set>

#include "apps/display/table.h"
#include "apps/measuring/runner.h"
#include "quant/hash.h"

namespace pipit::apps {

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

std::vector<LabelledImage> images_to_judge(const std::string& folder, Against against,
                                           const ImageOptions& options, const Model& model,
                                           std::int64_t classes, std::int64_t limit,
                                           const std::string& otherwise) {
  std::vector<LabelledImage> images;
  if (against == Against::labels) {
    const Labels labels = options.resolve_labels(model, classes);
    try {
      images = list_labelled_images(folder, labels, static_cast<int>(classes));
    } catch (const Error& e) {
      if (!std::filesystem::is_directory(folder)) throw;
      fail("{} (images without classes: {})", e.what(), otherwise);
    }
  } else {
    for (std::filesystem::path& path : list_images(folder)) images.push_back({std::move(path), 0});
  }
  return spread(std::move(images), limit);
}

ImageSplit split_images(const std::vector<LabelledImage>& images, const QuantizationPlan* plan) {
  std::set<std::string> known;
  if (plan != nullptr) {
    for (const CalibrationImage& image : plan->images) known.insert(image.hash);
  }
  ImageSplit split;
  std::size_t position = 0;
  for (const LabelledImage& image : images) {
    const bool calibrated = !known.empty() && known.contains(hash_file(image.path));
    const bool search = calibrated || position++ % 2 == 0;
    (search ? split.search : split.unseen).push_back(image);
  }
  if (split.search.empty() || split.unseen.empty())
    fail("{}{}: too few to choose on some and to check on others", counted(std::ssize(images), "image"),
         plan == nullptr ? "" : fmt::format(", {} of them new to the plan", split.unseen.size()));
  return split;
}

}  // namespace pipit::apps
