// How images become a model's input, and what its classes are called.
#include <fmt/format.h>

#include <algorithm>

#include "apps/options/list_option.h"
#include "apps/options/options.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

void add_strict_to(CLI::App& command, bool& strict) {
  command.add_flag(
      "--strict", strict,
      "Stop at the first image or folder that cannot be used, instead of excluding it with a note");
}

void ImageOptions::add_to(CLI::App& command) {
  add_preprocessing_to(command);
  command
      .add_option(
          "--labels", labels,
          "File with one class name per line, or JSON: a list, or a map like id2label or class_to_idx")
      ->type_name("FILE");
  std::vector<std::string> names;
  for (const ScoreKind kind : kScoreKinds) names.emplace_back(score_kind_name(kind));
  one_of(command.add_option(
             "--scores", scores,
             "Kind of the scores. If exactly one class is right: logits, probabilities (softmax) or their "
             "logarithms (log-softmax). If classes are independent: probabilities (sigmoid) or logits "
             "(sigmoid-logits) [as the model stores, else as its graph shows]"),
         names);
}

void ImageOptions::add_threshold_to(CLI::App& command) {
  command
      .add_option("--threshold", threshold,
                  "For independent classes, or a single score: the lowest probability that counts as yes")
      ->check(finite_number())
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("N")
      ->capture_default_str();
}

void ImageOptions::add_preprocessing_to(CLI::App& command) {
  one_of(
      command.add_option("--preset", preset,
                         "Preprocessing [as the model stores, else torchvision at the model's input size]"),
      preprocess_presets());
  command.add_option("--resize", resize, "Short side after resizing, in pixels; 0: no resizing")
      ->check(CLI::Range(0, PreprocessOptions::kMaxSide));
  command.add_option("--crop", crop, "Side of the centre crop, in pixels")
      ->check(CLI::Range(1, PreprocessOptions::kMaxSide));
  one_of(
      command.add_option("--interpolation", interpolation, "Filter for resizing, antialiased like Pillow's"),
      {"nearest", "bilinear", "bicubic"});
  add_list(command, "--mean", mean, finite_number(),
           "Subtracted per channel, after scaling to [0, 1] (presets may scale differently)")
      ->type_name("a,b,c");
  add_list(command, "--std", std, positive_number(), "Divides per channel")->type_name("a,b,c");
  command.add_flag("--bgr", bgr, "Channels in the order blue, green, red");
  command.add_flag(
      "--no-exif-transpose", no_exif_transpose,
      "Use photographs as they are stored, instead of turning them upright according to their EXIF data");
}

bool ImageOptions::has_preprocessing() const {
  return !preset.empty() || resize || crop || !interpolation.empty() || !mean.empty() || !std.empty() ||
         bgr || no_exif_transpose;
}

PreprocessOptions ImageOptions::preprocess_options() const {
  const auto three = [](const char* option, const std::vector<float>& values) {
    std::optional<std::array<float, 3>> result;
    if (values.empty()) return result;
    if (values.size() != 3)
      throw CLI::ValidationError(option, fmt::format("{} numbers; expected a,b,c", values.size()));
    std::copy_n(values.begin(), 3, result.emplace().begin());
    return result;
  };
  PreprocessOptions options;
  options.preset = preset;
  options.resize = resize;
  options.crop = crop;
  options.interpolation = interpolation;
  options.mean = three("--mean", mean);
  options.std = three("--std", std);
  options.bgr = bgr;
  options.ignore_exif_orientation = no_exif_transpose;
  return options;
}

std::optional<ScoreKind> ImageOptions::score_kind() const {
  return scores.empty() ? std::nullopt : find_score_kind(scores);
}

}  // namespace pipit::internal::apps
