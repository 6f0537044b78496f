/// @file
/// How often a model is right, and how much another one or another precision loses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipit/accuracy.h"
#include "pipit/classifier.h"
#include "pipit/export.h"

namespace pipit::tools {

/// How well one independent class, or the yes of a model that says yes or no, is told from the others.
struct ClassAccuracy {
  int index = 0;                 ///< of the class
  std::string label;             ///< its name; "class 7" where it has none
  std::int64_t images = 0;       ///< of the class
  std::int64_t yes = 0;          ///< of these the answer is yes
  std::int64_t false_yes = 0;    ///< images of other classes for which it is yes
  double average_precision = 0;  ///< area below precision over recall; 0 without images of the class
};

/// The speed of one GPU of several.
struct DeviceSpeed {
  int gpu = 0;                    ///< its ordinal
  std::int64_t images = 0;        ///< that it answered
  double model_images_per_s = 0;  ///< by the time in its kernels alone
};

/// The model that evaluate() compares with.
struct Baseline {
  /// An ONNX file, or one of the names that `pipit models` lists. Empty: the same model.
  std::string model;
  ModelPrecision precision = {};  ///< what it computes in
};

/// How a model is evaluated.
struct EvaluateOptions {
  /// How the model is read and compiled. RunShapes::batch may be any; DeviceOptions::gpus share the images.
  ClassifierOptions classifier = {};
  /// CSV file with the classes of the images, instead of the names of folders and files: one line for each image with
  /// its path below the folder, a comma, and its classes (names or indices) with ';' between. Empty: none.
  std::filesystem::path truth = {};
  std::int64_t limit = 0;  ///< images to use, spread evenly over the folder; 0: all
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
  std::optional<Baseline> against = {};  ///< also run the images through it, and compare
  std::optional<double> max_drop = {};   ///< for `against`: the largest drop that is allowed, in points
  /// Called as images are done, in any thread, one call at a time, with what was found so far: "top-1 76.20 %". What
  /// it throws ends the evaluation.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& found)> progress = {};
  /// Called with each note for the user, one sentence, before anything runs.
  std::function<void(const std::string& note)> note = {};
};

/// What evaluate() found.
struct Evaluation {
  /// What `right` counts: "top-1", "accuracy" of yes or no, "exact" where an answer is all tags of an image.
  std::string measure;
  Share right;                         ///< images that were answered so
  std::optional<Share> top5;           ///< where one class is right: it is among the five most probable
  std::vector<ClassAccuracy> classes;  ///< of independent classes, or of yes; in the order of classes
  bool tags = false;                   ///< an image may have any number of the classes
  std::optional<double>
      mean_average_precision;           ///< of `classes`, of tags; unset where no image has one of them
  std::vector<ExcludedImage> excluded;  ///< that could not be used
  double images_per_s = 0;              ///< with decoding
  double model_images_per_s = 0;        ///< by the time in kernels alone; GPUs add up
  std::vector<DeviceSpeed> devices;     ///< for DeviceOptions::gpus
  struct Comparison {
    Drop drop;                         ///< of the model against the base
    std::int64_t other_answers = 0;    ///< images that both answered differently
    std::optional<JudgedDrop> judged;  ///< with EvaluateOptions::max_drop
  };
  std::optional<Comparison> against;  ///< with EvaluateOptions::against
  bool quantized = false;             ///< the model's file is in INT8
  std::string preprocessing;          ///< what happened to images, in words
  std::vector<std::string> labels;    ///< the name of every class; may be empty
  double threshold = 0.5;             ///< of independent classes
  /// Besides EvaluateOptions::note: what the images were.
  std::vector<std::string> notes;
  std::string json;  ///< all of it, as `pipit evaluate --json` writes it (docs/json.md)

  /// The name of class `index`; "class 7" where it has none.
  PIPIT_API std::string label(int index) const;
};

/// Runs a model over the images of `folder`: one sub-folder for each class, all named by label or all by class index,
/// or files whose names begin with the class index and '_'; arrays (.npy, .npz) as well. Images are decoded on
/// DeviceOptions::threads while the model runs. Throws what Classifier does, Error where no image can be used, and for
/// an `against` with another number of classes; ArgumentError for options that contradict each other. May be called
/// from any thread.
PIPIT_API Evaluation evaluate(const std::string& model, const std::filesystem::path& folder,
                              const EvaluateOptions& options = {});

}  // namespace pipit::tools
