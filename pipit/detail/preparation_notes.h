// What a user should know of how images are prepared.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/classification.h"
#include "models/image/folder.h"
#include "models/model.h"
#include "pipit/detail/preparation.h"

namespace pipit::internal::detail {

/// The JSON form (models/image/preprocess.h) with "source", "preset" and "given" first.
nlohmann::ordered_json preparation_json(const Preparation& preparation);

/// Counts what the images of a run turned out to be.
struct ImageCounts {
  std::int64_t images = 0;
  std::int64_t grey = 0;
  std::int64_t turned = 0;  ///< upright
  /// With logits or independent scores that add up to 1 (are_probabilities(), layers/scores.h). Such logits are taken
  /// as they are.
  std::int64_t shares = 0;
  std::int64_t bounded = 0;  ///< other logits, all between 0 and 1 or percents
  bool independent = false;  ///< scores, as the output says
  void add(const LoadedImage& image, const ClassOutput& output, std::span<const float> scores);
};

/// What the model's metadata says wrongly, and so does not count.
std::vector<std::string> metadata_notes(const Model& model);

/// What a user should know of a run, one line each: random weights, guessed preprocessing, no labels (`labelled`: there
/// are, or they do not matter), a model that is quantized already, only grey images for a model of colours (`channels`
/// of its input), images that were turned upright, logits that were probabilities.
std::vector<std::string> notes_on(const Model& model, const Preparation& preparation, bool labelled,
                                  bool quantized, const ImageCounts& counts, std::int64_t channels);
/// Adds what a user should know of images that were not used: of formats that are not read, and of `total` those that
/// could not be.
void add_image_notes(std::vector<std::string>& notes, const LeftOut& left_out,
                     const std::vector<UnreadableImage>& unreadable, std::int64_t total);
/// The same for JSON: "left_out" and "unreadable", each where there is one.
nlohmann::ordered_json excluded_json(const LeftOut& left_out, const std::vector<UnreadableImage>& unreadable);

}  // namespace pipit::internal::detail
