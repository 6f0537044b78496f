// How right a model's answers are: of one class, of yes or no, of tags.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/classification.h"
#include "pipit/evaluate.h"
#include "pipit/measuring/image_truth.h"

namespace pipit::internal::detail {

/// Some of a class's images by how much a model says that they are of it.
struct RankedImage {
  float probability = 0;
  bool is_of_class = false;
};
/// The area below precision over recall: the sum over thresholds of the gain in recall times the precision there; equal
/// probabilities share one. 0 without an image of the class.
double average_precision(std::vector<RankedImage> images);

using tools::ClassAccuracy;

/// Counts answers. What is right: the class, as the one with the largest score; yes or no; of tags the same class where
/// every image has exactly one, else all of an image's tags and no other.
class Accuracy {
 public:
  /// `images` outlive it.
  Accuracy(const ClassOutput& output, const std::vector<TruthImage>& images);

  /// The scores of images[image]. Throws as top_classes() does.
  void add(std::size_t image, std::span<const float> scores, const std::string& model, Precision precision);

  const ClassOutput& output() const { return output_; }
  std::int64_t images() const { return count_; }
  std::int64_t right() const { return right_; }
  std::int64_t top5() const { return top5_; }
  /// Whether an answer is all tags of an image.
  bool of_sets() const { return of_sets_; }
  /// What right() counts: "exact" of sets, "accuracy" of yes or no, else "top-1".
  std::string measure() const { return of_sets_ ? "exact" : output_.yes_or_no() ? "accuracy" : "top-1"; }
  /// Whether its scores were added; what follows is about images of which they were.
  bool has(std::size_t image) const { return answers_[image].has_value(); }
  bool is_right(std::size_t image) const { return answers_[image] == truth(image); }
  const std::vector<int>& answer(std::size_t image) const { return answers_[image].value(); }
  /// The accuracy of yes, or of every tag that an image has, in the order of classes; without labels.
  std::vector<ClassAccuracy> classes() const;

 private:
  const std::vector<int>& truth(std::size_t image) const { return (*images_)[image].classes; }

  ClassOutput output_;
  const std::vector<TruthImage>* images_;
  bool of_sets_ = false;
  std::vector<std::optional<std::vector<int>>> answers_;  // of each image
  std::int64_t count_ = 0, right_ = 0, top5_ = 0;
  std::vector<std::size_t> added_;    // images in the order of the rows of
  std::vector<float> probabilities_;  // [added, values], of independent classes
};

}  // namespace pipit::internal::detail
