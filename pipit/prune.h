/// @file
/// Smaller and faster models without training: groups of weights are removed, and the others are fitted.
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
#include "pipit/progress.h"
#include "pipit/speedup.h"

namespace pipit::tools {

/// What a pruned model is to reach: exactly one of keep, speedup and max_drop.
struct PruneGoal {
  std::optional<double>
      keep;             ///< share of every layer's weights, or channels, that stays; above 0, at most 1
  bool global = false;  ///< for keep, of rows: it is the share of all layers together
  std::optional<double> speedup;   ///< over the dense model in the same precision; above 1
  std::optional<double> max_drop;  ///< the largest drop against the dense model in fp32, in points
  double seconds = 60;  ///< for speedup and max_drop: how long whole selections are measured; above 0
  JudgeBy judge_by = JudgeBy::labels;  ///< what counts as right
};

/// What is removed together.
enum class PruneMode : std::uint8_t {
  automatic,  ///< whichever is better for each layer; for PruneGoal::keep rows
  rows,       ///< rows of the im2col product, which zeros in the weights mark
  channels,   ///< channels that one layer writes: it and the layers that read them become smaller
  blocks,     ///< blocks of neighbouring channels
  inputs,     ///< input channels, whatever layers write them, also in residual streams
};

/// How the loss that removing a group causes is estimated.
enum class Importance : std::uint8_t {
  l1,            ///< the magnitudes of its weights
  l2,            ///< their squares
  activation,    ///< these times the squares of what they multiply
  second_order,  ///< the loss once the other weights make up for it
};

/// Which part of an input channel is removed from a panel of outputs at once.
enum class PrunedRows : std::uint8_t {
  automatic,  ///< whichever is better for each set of layers; for PruneGoal::keep a tap
  tap,        ///< one tap of the window
  channel,    ///< all taps, in 3x3 layers of stride 1, as Winograd kernels need it; else one
};

/// How a model is pruned.
struct PruneOptions {
  /// How the model is read, compiled and used. LoadOptions::precision, fp32 or int8, is what it is pruned for on the
  /// CPU; with int8 the result is calibrated on 100 of the images and written as quantize() does.
  ClassifierOptions classifier;
  PruneGoal goal;                                    ///< what is to be reached
  PruneMode mode = PruneMode::automatic;             ///< what is removed together
  Importance importance = Importance::second_order;  ///< how losses are estimated
  PrunedRows rows = PrunedRows::automatic;           ///< of PruneMode::rows
  /// Of rows: neighbouring input channels that are removed together, 1, 4, 8 or 16. Unset: 1, for int8 4.
  std::optional<std::int64_t> group;
  /// Of rows: neighbouring outputs that lose the same ones, 16 or 32; 0: all of a layer; 1: each output loses its own,
  /// with a group of 1. Unset: those that this CPU computes together.
  std::optional<std::int64_t> panel;
  std::int64_t block = 16;  ///< of PruneMode::blocks: channels of a block, 4, 8, 16 or 32
  bool refit = true;        ///< fit the kept weights
  /// How strongly these are held to their old values, as a share of the variance of what they multiply.
  double ridge = 1e-4;
  /// Images to check the result on. Empty: every other one of the images, used for nothing else.
  std::filesystem::path check;
  std::int64_t limit = 0;              ///< images to use of each folder, spread evenly; 0: all
  std::int64_t calibrate_limit = 512;  ///< images to choose and fit on; 0: all that fit in 1.9 GiB
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
  StageProgress progress;  ///< "the dense model", "ordering groups", "fitting weights", "checking" and others
  /// Called with what a user should know, one sentence each time, PrunedModel::notes among it. May be empty.
  std::function<void(const std::string& note)> note;
};

/// A pruned model that was measured.
struct PruneStep {
  Speedup speedup;                  ///< over the dense model in the same precision
  double ms = 0;                    ///< a run
  std::optional<double> predicted;  ///< the speed-up by its layers' times, where those were measured
  Drop drop;                        ///< against the dense model in fp32, on the images of the search
  double expected_drop = 0;         ///< in points, by how near to each other the best two scores are
  double expected_drop_error = 0;   ///< its standard error
  bool pareto = false;  ///< no other step is as fast and expected to drop less, or as good and faster
  bool chosen = false;  ///< it is what was written
};

/// What might be removed, measured in the search with weights that were fitted on few images.
struct PruneSelection {
  double predicted = 1;  ///< its speed-up by its layers' times
  Speedup speedup;       ///< measured
  double error = 0;      ///< how far its answers are from those of the dense model
};

/// What became of a layer of the dense model.
struct PrunedLayer {
  std::string name;                ///< in the model
  double kept = 1;                 ///< share of the weights that is not zero, of the dense layer's
  std::int64_t macs = 0;           ///< multiply-accumulates of the dense layer
  double dense_ms = 0;             ///< the dense layer's time
  double pruned_ms = 0;            ///< the pruned layer's
  std::string dense_kernel;        ///< what ran it
  std::string pruned_kernel;       ///< what runs it; empty where it is gone
  std::optional<double> error;     ///< of its outputs, over their variance, where its weights changed
  std::optional<PrunedRows> rows;  ///< which rows were removed for panels of outputs; never automatic
};

/// The pruned model in INT8 against what it was made from.
struct PrunedInt8 {
  int int8_layers = 0;   ///< as QuantizedFile
  int float_layers = 0;  ///< as QuantizedFile
  double fp32_ms = 0;    ///< the dense model in fp32
  Speedup over_fp32;     ///< of the pruned model over that
  Drop dense_unseen;     ///< of the dense model in INT8, on the unseen images
};

/// What prune() found and wrote.
struct PrunedModel {
  std::string measure;  ///< what counts: "top-1", "agreement with dense", ...
  /// Why no file was written: nothing that meets the goal is faster. Empty where one was; else only what was measured
  /// is set: up to time_was_short, and calibration_images.
  std::string problem;
  bool passed = true;      ///< the goal counts as met
  double dense_right = 0;  ///< share of the images of the search on which the dense model in fp32 is right
  double dense_ms = 0;     ///< a run of the dense model in the same precision
  std::vector<PruneStep> steps;            ///< the slowest first; one is chosen
  std::vector<PruneSelection> selections;  ///< in the order in which they were measured
  bool time_was_short = false;   ///< PruneGoal::seconds were over before the fewest selections were measured
  double macs_kept = 1;          ///< share of the multiply-accumulates that is left
  std::int64_t bytes = 0;        ///< size of the file
  std::int64_t dense_bytes = 0;  ///< of the dense model, written the same way in fp32
  Drop unseen;                   ///< of the written model, on the images that the search did not see
  std::optional<PrunedInt8> int8;    ///< for Precision::int8
  std::optional<JudgedDrop> judged;  ///< for PruneGoal::max_drop
  std::vector<PrunedLayer> layers;   ///< in the order in which the dense model runs
  double zero_rows = 0;              ///< share of the dense weights that was zero in whole rows, and stays so
  double other_zeros = 0;            ///< share that was zero otherwise: fitted like other weights
  std::int64_t calibration_images = 0;  ///< that weights were chosen and fitted on
  std::vector<std::string> remarks;     ///< what a user should know of the result
  std::vector<ExcludedImage> excluded;  ///< that could not be used
  std::vector<std::string> notes;       ///< what a user should know of the images
  std::string json;                     ///< all of it, as `pipit prune --json` writes it (docs/json.md)
};

/// Removes groups of weights of a model, fits the others to what the dense layers compute (least squares, no training),
/// and writes the result as ONNX to `output`, in full or not at all. `images`: with their classes, as evaluate() takes
/// them. For a speed-up or a drop candidates are timed on this CPU, whole selections of them measured, the best fitted
/// in full and checked on unseen images (docs/sparsity.md). Times differ from run to run, and so may what is chosen for
/// these goals; for PruneGoal::keep the file does not. Throws what evaluate() and quantize() do; Error where the
/// images are too few; UnsupportedError for a model without anything to remove; ArgumentError for options that cannot
/// be. May be called from any thread.
PIPIT_API PrunedModel prune(const std::string& model, const std::filesystem::path& images,
                            const std::filesystem::path& output, const PruneOptions& options);

}  // namespace pipit::tools
