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

/// The goal of pruning: exactly one of keep, speedup and max_drop.
struct PruneGoal {
  std::optional<double>
      keep;             ///< share of every layer's weights, or channels, that stays; above 0, at most 1
  bool global = false;  ///< for keep with rows: the share applies to all layers together
  std::optional<double> speedup;   ///< over the dense model in the same precision; above 1
  std::optional<double> max_drop;  ///< the largest drop against the dense model in fp32, in points
  double seconds = 60;             ///< for speedup and max_drop: time for measuring whole selections; above 0
  JudgeBy judge_by = JudgeBy::labels;  ///< what answers are compared with
};

/// What is removed together.
enum class PruneMode : std::uint8_t {
  automatic,  ///< whichever is better for each layer; for PruneGoal::keep rows
  rows,       ///< rows of the im2col product, marked by zeros in the weights
  channels,   ///< channels written by one layer: it and the layers that read them become smaller
  blocks,     ///< blocks of neighbouring channels
  inputs,     ///< input channels, whichever layers write them, also in residual streams
};

/// How the loss that removing a group causes is estimated.
enum class Importance : std::uint8_t {
  l1,            ///< the magnitudes of its weights
  l2,            ///< their squares
  activation,    ///< these times the squares of what they multiply
  second_order,  ///< the loss after the other weights compensate for it
};

/// Which part of an input channel is removed from a panel of outputs at once.
enum class PrunedRows : std::uint8_t {
  automatic,  ///< whichever is better for each set of layers; for PruneGoal::keep a tap
  tap,        ///< one tap of the window
  channel,    ///< all taps, as Winograd kernels require, in 3x3 layers of stride 1; else one tap
};

/// How a model is pruned.
struct PruneOptions {
  /// How the model is read, compiled and used. LoadOptions::precision, fp32 or int8, is the precision on the CPU for
  /// which it is pruned; with int8, without options, the result is calibrated on 100 of the images and written as
  /// quantize() does.
  ClassifierOptions classifier = {};
  PruneGoal goal = {};                               ///< the goal
  PruneMode mode = PruneMode::automatic;             ///< what is removed together
  Importance importance = Importance::second_order;  ///< how losses are estimated
  PrunedRows rows = PrunedRows::automatic;           ///< for PruneMode::rows
  /// For rows: neighbouring input channels that are removed together, 1, 4, 8 or 16. Unset: 1, for int8 4.
  std::optional<std::int64_t> group = {};
  /// For rows: neighbouring outputs that lose the same rows, 16 or 32; 0: all of a layer; 1: each output separately,
  /// with a group of 1. Unset: the number that this CPU computes together; for a speedup or a drop also 1 if this CPU
  /// gains by that (fp32, AVX-512), whichever is better for each set of layers.
  std::optional<std::int64_t> panel = {};
  std::int64_t block = 16;  ///< for PruneMode::blocks: channels of a block, 4, 8, 16 or 32
  bool refit = true;        ///< fit the kept weights
  /// How strongly the kept weights are held to their old values, as a share of the variance of their inputs.
  double ridge = 1e-4;
  /// Images to check the result on. Empty: every other one of the images, used for nothing else.
  std::filesystem::path check = {};
  std::int64_t limit = 0;              ///< images to use from each folder, spread evenly; 0: all
  std::int64_t calibrate_limit = 512;  ///< images to choose and fit on; 0: all that fit in 1.9 GiB
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
  StageProgress progress =
      {};  ///< "the dense model", "ordering groups", "fitting weights", "checking" and others
  /// Called with each note for the user, one sentence, including PrunedModel::notes. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// A pruned model that was measured.
struct PruneStep {
  Speedup
      speedup;    ///< over the dense model in the same precision, in the search; for PruneGoal::keep after it
  double ms = 0;  ///< of a run
  std::optional<double> predicted;  ///< speedup predicted from times of layers, if measured
  Drop drop;                        ///< against the dense model in fp32, on the images of the search
  double expected_drop = 0;         ///< in points, from the distances between the best two scores
  double expected_drop_error = 0;   ///< its standard error
  bool pareto = false;  ///< no other step is as fast with a smaller expected drop, or as good and faster
  bool chosen = false;  ///< the step that was written
};

/// A candidate selection of weights to remove, measured in the search with weights fitted on few images.
struct PruneSelection {
  double predicted = 1;  ///< speedup predicted from times of its layers
  Speedup speedup;       ///< measured
  double error = 0;      ///< distance of its answers from those of the dense model
};

/// A layer of the dense model, and its pruned form.
struct PrunedLayer {
  std::string name;                ///< in the model
  double kept = 1;                 ///< share of the dense layer's weights that is not zero
  std::int64_t macs = 0;           ///< multiply-accumulates of the dense layer
  double dense_ms = 0;             ///< the dense layer's time
  double pruned_ms = 0;            ///< the pruned layer's
  std::string dense_kernel;        ///< what ran it
  std::string pruned_kernel;       ///< what runs it; empty if the layer was removed
  std::optional<double> error;     ///< of its outputs over their variance, if its weights changed
  std::optional<PrunedRows> rows;  ///< which rows were removed for panels of outputs; never automatic
  std::optional<std::int64_t>
      panel;  ///< with rows: the outputs that lost the same rows, as PruneOptions::panel
};

/// The pruned model in INT8, compared with the dense model.
struct PrunedInt8 {
  int int8_layers = 0;   ///< as QuantizedFile
  int float_layers = 0;  ///< as QuantizedFile
  double fp32_ms = 0;    ///< the dense model in fp32
  Speedup over_fp32;     ///< of the pruned model over the dense model in fp32
  Drop dense_unseen;     ///< of the dense model in INT8, on the unseen images
};

/// What prune() found and wrote.
struct PrunedModel {
  std::string measure;  ///< the measure of accuracy: "top-1", "agreement with dense", ...
  /// Why no file was written: nothing that could be is faster. Empty if a file was written. Otherwise only these
  /// members are set: measure, passed, reached, those from dense_right to time_was_short, and calibration_images.
  std::string problem;
  bool passed = true;  ///< whether the goal is met
  /// For PruneGoal::speedup and PruneGoal::max_drop: whether that is reached. A speedup is, if the median of `speedup`
  /// is at least as large and the lower end of its interval at most 3 % smaller; if none is, the fastest model of all
  /// attempts is written. A drop is by JudgedDrop::within of `judged`.
  std::optional<bool> reached;
  /// Of the written model over the dense one in the same precision, measured after the search as bench() does with
  /// BenchOptions::against. The speedups of steps and selections are those that the search chose by: the best of many
  /// measurements is too high, and the next one is lower.
  Speedup speedup;
  double dense_right = 0;  ///< share of the search's images that the dense model in fp32 answers correctly
  double dense_ms = 0;     ///< time of a run of the dense model in the same precision
  std::vector<PruneStep> steps;            ///< the slowest first; one is chosen
  std::vector<PruneSelection> selections;  ///< in the order in which they were measured
  bool time_was_short = false;   ///< PruneGoal::seconds elapsed before the minimum of selections was measured
  double macs_kept = 1;          ///< share of the multiply-accumulates that remains
  std::int64_t bytes = 0;        ///< size of the file
  std::int64_t dense_bytes = 0;  ///< of the dense model, written the same way in fp32
  Drop unseen;                   ///< of the written model, on the images that the search did not see
  std::optional<PrunedInt8> int8;    ///< for Precision::int8
  std::optional<JudgedDrop> judged;  ///< for PruneGoal::max_drop
  std::vector<PrunedLayer> layers;   ///< in the order in which the dense model runs
  double zero_rows = 0;    ///< share of the dense weights in rows that are all zero, which stay zero
  double other_zeros = 0;  ///< share of other zeros, which are fitted like all weights
  std::int64_t calibration_images = 0;  ///< images for choosing and fitting weights
  std::vector<std::string> remarks;     ///< notes about the result
  std::vector<ExcludedImage> excluded;  ///< images that could not be used
  std::vector<std::string> notes;       ///< notes about the images
  std::string json;                     ///< all of it, as `pipit prune --json` writes it (docs/json.md)
};

/// Removes groups of weights of a model, fits the others to the results of the dense layers (least squares, no
/// training), and writes the model as ONNX to `output`, in full or not at all. `images`: with their classes, as
/// evaluate() takes them. For a speedup or a drop, candidates are timed on this CPU, whole selections of them are
/// measured, and the best is fitted in full, timed again and checked on unseen images (docs/sparsity.md). Times differ
/// from run to run, and so may the result for these goals; for PruneGoal::keep the file is always the same. Throws what
/// evaluate() and quantize() do; Error if there are too few images; UnsupportedError for a model without anything to
/// remove; ArgumentError for invalid options. May be called from any thread.
PIPIT_API PrunedModel prune(const std::string& model, const std::filesystem::path& images,
                            const std::filesystem::path& output, const PruneOptions& options);

}  // namespace pipit::tools
