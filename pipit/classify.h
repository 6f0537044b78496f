/// @file
/// What image files show, with notes about the answers.
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
  std::optional<bool> yes;  ///< for independent classes: whether the image shows it
};

/// The result for an image, or for a folder that cannot be read.
struct ClassifiedImage {
  std::filesystem::path path;    ///< as given, or below a given folder
  std::string error;             ///< why there is no answer, with the path; else empty
  std::vector<RankedClass> top;  ///< the most probable first
  double decode_ms = 0;          ///< reading, decoding and preparing, in one thread
  double run_ms = 0;             ///< its share of the kernel time of its batch
  int exif_orientation = 1;      ///< other than 1: the image was turned upright
};

/// How images are classified.
struct ClassifyOptions {
  ClassifierOptions classifier = {};     ///< how the model is read, compiled and used
  int top = 5;                           ///< classes of each image
  std::optional<int> profile_runs = {};  ///< also profile the model on the last image, in this many runs
  std::string model_note = {};  ///< the first of the notes in the JSON: DefaultModel::note. Empty: none
  /// Called with each image in order, one at a time, in any thread. May be empty. An exception from it ends the work.
  std::function<void(const ClassifiedImage& image)> image = {};
  /// Called with each note for the user, one sentence, before anything runs. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// What classify() found.
struct Classification {
  std::vector<ClassifiedImage>
      images;           ///< folders that cannot be read, then images in the order in which they were given
  bool failed = false;  ///< an image or folder has an error
  std::string preprocessing;           ///< how images were prepared, in words
  std::string preprocessing_source;    ///< where the preprocessing comes from, in words
  bool preprocessing_guessed = false;  ///< neither the model nor the options specify it
  std::string preset;                  ///< its starting point; empty if the model stores it
  bool labelled = false;               ///< classes have names
  std::optional<ModelProfile>
      profile;                     ///< with ClassifyOptions::profile_runs, on the last image with an answer
  std::string left_out;            ///< the files that were not read, in words; empty: none
  std::vector<std::string> notes;  ///< notes about the answers
  std::string json;                ///< all of it, as `pipit classify --json` writes it (docs/json.md)
};

/// Classifies image files; a folder stands for the images below it. Images are decoded on DeviceOptions::threads while
/// the model runs. An image that fails has its error, and the others continue. Throws what Classifier does for the
/// model, and ArgumentError for invalid options. May be called from any thread.
PIPIT_API Classification classify(const std::string& model, const std::vector<std::filesystem::path>& images,
                                  const ClassifyOptions& options = {});

/// Whether classify() takes this path: a folder, or a file whose extension is that of a readable image format. False
/// for the name of a model.
PIPIT_API bool is_for_images(const std::string& path);

}  // namespace pipit::tools
