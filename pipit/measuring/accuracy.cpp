#include "pipit/measuring/accuracy.h"

#include <algorithm>

#include "layers/scores.h"

namespace pipit::internal::detail {

double average_precision(std::vector<RankedImage> images) {
  std::ranges::sort(images, std::greater{}, &RankedImage::probability);
  std::int64_t hits = 0, before = 0;
  double sum = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    hits += images[i].is_of_class ? 1 : 0;
    if (i + 1 < images.size() && images[i + 1].probability == images[i].probability) continue;
    sum += static_cast<double>(hits - before) * static_cast<double>(hits) / static_cast<double>(i + 1);
    before = hits;
  }
  return hits > 0 ? sum / static_cast<double>(hits) : 0;
}

Accuracy::Accuracy(const ClassOutput& output, const std::vector<TruthImage>& images)
    : output_(output),
      images_(&images),
      of_sets_(
          output.are_tags() &&
          std::ranges::any_of(images, [](const TruthImage& image) { return image.classes.size() != 1; })),
      answers_(images.size()) {}

void Accuracy::add(std::size_t image, std::span<const float> scores, const std::string& model,
                   Precision precision) {
  const std::vector<int>& right = truth(image);
  const std::vector<ScoredClass> top =
      top_classes(output_, scores, 5, (*images_)[image].path.string(), model, precision);
  answers_[image] = of_sets_ ? pipit::internal::answer(output_, scores) : std::vector{top[0].index};
  ++count_;
  right_ += is_right(image) ? 1 : 0;
  top5_ += right.size() == 1 && std::ranges::find(top, right[0], &ScoredClass::index) != top.end() ? 1 : 0;
  if (!are_independent(output_.kind)) return;
  added_.push_back(image);
  for (const double p : probabilities(output_.kind, scores)) probabilities_.push_back(static_cast<float>(p));
}

std::vector<ClassAccuracy> Accuracy::classes() const {
  std::vector<ClassAccuracy> found;
  if (!are_independent(output_.kind)) return found;
  const auto values = static_cast<std::size_t>(output_.values);
  std::vector<RankedImage> ranked(added_.size());
  for (std::size_t v = 0; v < values; ++v) {
    ClassAccuracy of;
    of.index = output_.yes_or_no() ? 1 : static_cast<int>(v);
    for (std::size_t i = 0; i < added_.size(); ++i) {
      const float p = probabilities_[i * values + v];
      const bool is = std::ranges::binary_search(truth(added_[i]), of.index);
      ranked[i] = {p, is};
      of.images += is ? 1 : 0;
      of.yes += is && output_.is_yes(p) ? 1 : 0;
      of.false_yes += !is && output_.is_yes(p) ? 1 : 0;
    }
    if (of.images == 0 && !output_.yes_or_no()) continue;
    of.average_precision = average_precision(ranked);
    found.push_back(of);
  }
  return found;
}

}  // namespace pipit::internal::detail
