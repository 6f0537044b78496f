// How images are prepared for a model, and where that is from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/classification.h"
#include "models/model.h"
#include "pipit/classifier.h"

namespace pipit::internal::detail {

struct Preparation {
  enum class Source {
    stored,   ///< in the model's metadata, or in a file beside it
    given,    ///< by a preset, or by resize, interpolation, mean and std together
    guessed,  ///< torchvision's at the input's size
    arrays,   ///< not at all: arrays are taken as they are
  };
  Preprocess preprocess;
  Source source = Source::guessed;
  std::string from;                ///< Model::preprocess_from, of what is stored
  std::string preset;              ///< what it began with; empty when stored
  std::vector<std::string> given;  ///< keys of the JSON form that options have set
};

/// What the model stores, or the preset of `options` (torchvision without one) fitted to the model's input, with the
/// other options on top. Throws Error, naming the model, when its input is no image or the result is not of its size.
Preparation prepare_for(const Model& model, const PreprocessOptions& options);

/// The same for these files, of which all are images or all are arrays. Nothing is done to arrays: throws ArgumentError
/// for options that would.
Preparation prepare_files(const Model& model, const PreprocessOptions& options,
                          const std::vector<std::filesystem::path>& files);

/// The output of `graph`, which is the model's or was made of it. `scores`: its kind, unset: what the model says.
/// Throws Error where the output is of another form, ArgumentError for a threshold outside of [0, 1].
ClassOutput class_output(const Graph& graph, const Model& model, std::optional<ScoreKind> scores,
                         double threshold);

/// "stored", "given", "guessed" or "arrays".
std::string_view source_name(Preparation::Source source);
/// "stored in the model", "given", "guessed", with the preset and the options on top.
std::string source_text(const Preparation& preparation);
/// "short side 256, bilinear, crop 224x224, mean 0.485 0.456 0.406, ...".
std::string describe(const Preprocess& preprocess);

/// What a user should know of scores that are no probabilities of classes of which one is right; empty for others.
std::string scores_note(const ClassOutput& output);

/// The labels of the file, else the model's own; may be empty. Where one score says yes or no: the names of no and of
/// yes, "no" and "yes" without any, "not cat" and "cat" where only the score has one. Throws Error when there are more
/// or fewer than classes.
Labels labels_for(const Model& model, const std::filesystem::path& file, const ClassOutput& output);

}  // namespace pipit::internal::detail
