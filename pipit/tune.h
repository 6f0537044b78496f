/// @file
/// Mixed precision: which layers stay in floating point so that INT8 costs no more accuracy than allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipit/accuracy.h"
#include "pipit/classifier.h"
#include "pipit/export.h"
#include "pipit/progress.h"

namespace pipit::tools {

/// How layers are chosen.
struct TuneOptions {
  /// How the model is read, compiled and used; its precision has no part in it. Accuracy and times are those of
  /// LoadOptions::device.
  ClassifierOptions classifier = {};
  /// A plan whose scales are used, and whose images belong to the search. Empty: scales are found first.
  std::filesystem::path plan = {};
  /// Layers that stay in floating point from the start, or do not although the plan keeps them, as Int8::keep.
  std::vector<std::string> keep = {};
  double max_drop = 1;  ///< the largest drop against fp32 that is allowed, in points
  /// Percent, from 50 on: how sure the search must be, from its own images, that the drop is within max_drop. 50 takes
  /// the measured drop as it is; higher values keep more layers and need many images.
  double confidence = 75;
  JudgeBy judge_by = JudgeBy::labels;  ///< what counts as right
  /// What kept layers compute in: fp32; fp16, which the CPU computes in fp32; or bf16. Unset: bf16 on a CPU
  /// that multiplies it, fp16 on a GPU, else fp32.
  std::optional<Precision> keep_as = {};
  std::int64_t limit = 0;              ///< images to use, spread evenly; 0: all
  std::int64_t calibrate_limit = 100;  ///< without a plan: images of the search that scales are of; 0: all
  bool strict =
      false;  ///< throw Error for the first image or folder that cannot be used, instead of excluding it
  StageProgress progress = {};  ///< "calibrating", "judging layers", "mixing precisions", "checking"
  /// Called with each note for the user, one sentence, before anything runs. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// A model in mixed precision, as it was tried.
struct TuneStep {
  std::string order;               ///< of the layers: a key of TunedPlan::orders
  int kept = 0;                    ///< this many layers from its start stay in floating point
  double ms = 0;                   ///< a run; on a GPU the device's time
  Drop drop;                       ///< against fp32, on the images of the search
  double expected_drop = 0;        ///< in points, by how near to each other the best two scores are
  double expected_drop_error = 0;  ///< its standard error
  bool pareto = false;  ///< no other step is as fast and expected to drop less, or as good and faster
  bool chosen = false;  ///< it is what the plan says
};

/// What tune() found and wrote.
struct TunedPlan {
  std::string measure;                  ///< what counts: "top-1", "agreement with fp32", ...
  std::vector<std::string> kept;        ///< layers that stay in floating point, besides the plan's
  Precision keep_as = Precision::fp32;  ///< what they compute in
  std::map<std::string, std::vector<std::string>>
      orders;                           ///< layers, the best kept one first, by kind of order
  std::vector<TuneStep> steps;          ///< all that was tried
  double fp32_ms = 0;                   ///< a run in fp32
  std::optional<TuneStep> bf16;         ///< the whole model in bf16, where kept layers may be so
  bool bf16_enough = false;             ///< that is good enough
  bool bf16_is_best = false;            ///< and no slower than what the plan says, within 1 %
  bool int8_enough = false;             ///< INT8 throughout is good enough
  bool sure = true;                     ///< the search is; else not even with all layers kept, and all are
  Drop unseen;                          ///< of the plan, on the images that the search did not see
  Drop unseen_int8;                     ///< of INT8 throughout, on these
  JudgedDrop judged;                    ///< of the first
  std::int64_t calibration_images = 0;  ///< 0 with a plan
  std::vector<ExcludedImage> excluded;  ///< that could not be used
  std::vector<std::string> notes;       ///< notes about the images
  std::string json;                     ///< all of it, as `pipit tune --json` writes it (docs/json.md)
};

/// Finds the layers of a model to keep in floating point so that INT8 costs at most TuneOptions::max_drop, and writes
/// the plan that says so to `output`, which may be TuneOptions::plan. `images`: with their classes, as evaluate() takes
/// them. Half of them are for the search, the others only for the check after it. Layers are ordered by the noise that
/// each causes at the output, and by the drop that it causes, per millisecond that keeping it costs; then more and more
/// of them are kept, and each step is evaluated and timed in turns with INT8 throughout (docs/quantization.md). Throws
/// what evaluate() and calibrate() do; ArgumentError for invalid options. May be called from any thread.
PIPIT_API TunedPlan tune(const std::string& model, const std::filesystem::path& images,
                         const std::filesystem::path& output, const TuneOptions& options = {});

}  // namespace pipit::tools
