/// @file
/// What image files show, with all that a user should know of the answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipit/classifier.h"
#include "pipit/export.h"
#include "pipit/profile.h"

namespace pipit::tools {

/// One class of the answer about an image.
struct RankedClass {
  Prediction prediction;    ///< the class and its probability
  std::optional<bool> yes;  ///< of independent classes: whether the image has it
};

/// What became of an image, or of a folder that cannot be read.
struct ClassifiedImage {
  std::filesystem::path path;    ///< as given, or below a folder that was
  std::string error;             ///< why there is no answer, with the path; empty: there is
  std::vector<RankedClass> top;  ///< the most probable first
  double decode_ms = 0;          ///< reading, decoding and preparing, in one thread
  double run_ms = 0;             ///< its share of the kernel time of its batch
  int exif_orientation = 1;      ///< other than 1: it was turned upright
};

/// How images are classified.
struct ClassifyOptions {
  ClassifierOptions classifier;     ///< how the model is read, compiled and used
  int top = 5;                      ///< classes of each image
  std::optional<int> profile_runs;  ///< also profile the model on the last image, in that many runs
  std::string model_note;           ///< the first of the notes in the JSON: DefaultModel::note. Empty: none
  /// Called with each image in order, one at a time, in any thread. May be empty. What it throws ends the work.
  std::function<void(const ClassifiedImage& image)> image;
  /// Called before anything runs with what a user should know, one sentence each time. May be empty.
  std::function<void(const std::string& note)> note;
};

/// What classify() found.
struct Classification {
  std::vector<ClassifiedImage>
      images;           ///< folders that cannot be read, then images in the order in which they were given
  bool failed = false;  ///< one of them has an error
  std::string preprocessing;           ///< what happened to images, in words
  std::string preprocessing_source;    ///< where that is from, in words
  bool preprocessing_guessed = false;  ///< the model does not store it, and options do not say it
  std::string preset;                  ///< that it began with; empty where the model stores it
  bool labelled = false;               ///< classes have names
  std::optional<ModelProfile>
      profile;                     ///< with ClassifyOptions::profile_runs, of the last image with an answer
  std::string left_out;            ///< which files were not read, in words; empty: none
  std::vector<std::string> notes;  ///< what a user should know of the answers
  std::string json;                ///< all of it, as `pipit classify --json` writes it (docs/json.md)
};

/// Classifies image files; folders stand for the images below them. Images are decoded on LoadOptions::threads while
/// the model runs. What is wrong with one image is in it, and the others go on. Throws what Classifier does for the
/// model, ArgumentError for options that cannot be. May be called from any thread.
PIPIT_API Classification classify(const std::string& model, const std::vector<std::filesystem::path>& images,
                                  const ClassifyOptions& options = {});

/// Whether the name is one of an image that is read, by its end, or a folder: what classify() takes. False for the name
/// of a model.
PIPIT_API bool is_for_images(const std::string& path);

}  // namespace pipit::tools
