#include "apps/measuring/judged_images.h"

#include "apps/measuring/runner.h"

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

}  // namespace pipit::apps
