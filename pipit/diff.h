/// @file
/// What INT8 costs each layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipit/accuracy.h"
#include "pipit/classifier.h"
#include "pipit/export.h"
#include "pipit/progress.h"

namespace pipit::tools {

/// The values of a tensor in INT8 against those in fp32, over all images.
struct TensorError {
  double cosine = 0;  ///< of the angle between both; 1 where both are zero
  double sqnr_db =
      0;  ///< 10 log10(sum of squares / sum of squared differences); infinite without a difference
  double max_error = 0;  ///< the largest difference
};

/// What INT8 makes of one layer's output, with all layers before it in INT8 as well.
struct LayerError {
  std::string name;                       ///< of the layer in the model
  std::string type;                       ///< Conv, Gemm, ...
  std::string tensor;                     ///< its first output
  Precision precision = Precision::fp32;  ///< what it computes in
  TensorError error;                      ///< of that output
  std::optional<double>
      clipped;  ///< share of the fp32 values beyond the INT8 range; unset where none is rounded
  std::int64_t worst_channel = 0;     ///< the output channel with the most noise
  double worst_channel_share = 0;     ///< its share of the layer's noise
  double worst_channel_sqnr_db = 0;   ///< its signal to noise
  std::optional<double> noise_alone;  ///< relative noise of the model's output with this layer alone in INT8
  std::optional<double> noise_without;  ///< with all layers but this one in INT8
  std::optional<double> share_alone;    ///< noise_alone over Difference::output_noise
  std::optional<double> share_removed;  ///< the share of output_noise that goes when this layer stays in fp32
};

/// How precisions are compared.
struct DiffOptions {
  LoadOptions load = {};  ///< how the model is read and compiled; precision and tuning have no part in it
  /// Layers that stay in floating point besides those that the plan keeps, or do not, as Int8::keep.
  std::vector<std::string> keep = {};
  PreprocessOptions preprocess = {};  ///< how the images are prepared
  std::int64_t limit = 0;             ///< images to use, spread evenly; 0: all
  bool shares = true;  ///< also run the model twice for each layer, for noise_alone and noise_without
  std::int64_t share_limit = 32;  ///< images for that; 0: all
  bool strict =
      false;  ///< throw Error for the first image or folder that cannot be used, instead of excluding it
  StageProgress progress = {};  ///< "comparing" and "layer by layer"
  /// Called with each note for the user, one sentence, before anything runs.
  std::function<void(const std::string& note)> note = {};
};

/// What diff() found.
struct Difference {
  std::vector<LayerError> layers;  ///< in the order of the model
  TensorError output;              ///< the model's first output
  std::int64_t images = 0;         ///< that were compared
  /// Images with another answer; of a model that is no classifier, with another largest value.
  std::int64_t other_answers = 0;
  std::optional<ScoreKind> scores;  ///< of a classifier
  std::int64_t share_images = 0;    ///< for DiffOptions::shares
  double output_noise = 0;          ///< relative noise of the output with all layers in INT8, on those images
  std::vector<ExcludedImage> excluded;  ///< that could not be used
  std::vector<std::string> notes;       ///< notes for the user
  std::string json;                     ///< all of it, as `pipit diff --json` writes it (docs/json.md)
};

/// Runs a model in fp32 and in INT8 with the scales of `plan` over `images` (files, or folders of them; also arrays)
/// and compares every layer. The same images give the same result every time. Throws as calibrate() and quantize() do.
/// May be called from any thread.
PIPIT_API Difference diff(const std::string& model, std::span<const std::filesystem::path> images,
                          const std::filesystem::path& plan, const DiffOptions& options = {});

}  // namespace pipit::tools
