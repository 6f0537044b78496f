// How images are prepared for a model, who said so, and what a user should know of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/image/preprocess.h"
#include "models/model.h"

namespace pipit::apps {

struct LoadedImage;

struct Preparation {
  enum class Source {
    stored,   ///< in the model's metadata
    given,    ///< by --preset, or by --resize, --interpolation, --mean and --std together
    guessed,  ///< torchvision's at the input's size
  };
  Preprocess preprocess;
  Source source = Source::guessed;
  std::string preset;              ///< what it began with; empty when stored
  std::vector<std::string> given;  ///< keys of the JSON form that options have set
};

/// "stored in the model", "given", "guessed", with the preset and the options on top.
std::string source_text(const Preparation& preparation);
/// "short side 256, bilinear, crop 224x224, mean 0.485 0.456 0.406, ...".
std::string describe(const Preprocess& preprocess);
/// The JSON form (models/image/preprocess.h) with "source", "preset" and "given" in front.
nlohmann::ordered_json preparation_json(const Preparation& preparation);

/// Counts what the images of a run turned out to be.
struct ImageCounts {
  std::int64_t images = 0;
  std::int64_t grey = 0;
  std::int64_t turned = 0;  ///< upright
  void add(const LoadedImage& image);
};

/// What a user should know of a run, one line each: random weights, guessed preprocessing, no labels (`labelled`: there
/// are, or they do not matter), a model that is quantised already, only grey images for a model of colours (`channels`
/// of its input), images that were turned upright.
std::vector<std::string> notes_on(const Model& model, const Preparation& preparation, bool labelled,
                                  bool quantised, const ImageCounts& counts, std::int64_t channels);
/// Writes them to stderr.
void print_notes(const std::vector<std::string>& notes);

}  // namespace pipit::apps
