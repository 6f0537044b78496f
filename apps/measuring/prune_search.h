// From a goal (a share, a speed-up, a drop) to the pruned model that meets it, measured.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/display/progress.h"
#include "apps/measuring/pruning.h"
#include "engine/base/statistics.h"
#include "pipit/accuracy.h"
#include "quant/drop_verdict.h"
#include "quant/mixed_search.h"

namespace pipit::internal::apps {

/// Selections that are measured for a speed-up however long that takes.
inline constexpr int kMinSelections = 3;

/// One of keep, speedup and max_drop.
struct PruneGoal {
  std::optional<double> keep;      ///< share of the weights
  std::optional<double> speedup;   ///< of a run of the model
  std::optional<double> max_drop;  ///< points
  bool global = false;             ///< keep is that of all layers together
  double seconds = 60;             ///< for speedup and max_drop: how long selections are measured
  JudgeBy judge_by = JudgeBy::labels;
};

struct PruneImages {
  ClassOutput output;           ///< of the dense model, and of what is made of it
  std::int64_t calibrated = 0;  ///< number of images that weights were chosen and fitted on
  PreparedImages& search;       ///< that steps are judged on
  std::vector<int> search_labels;
  ImageOutputs search_answers;  ///< of the dense model in fp32
  PreparedImages& probe;        ///< a few of them, to measure noise with
  PreparedImages& compared;     ///< that selections are compared on: none that Pruning::sketch() fits on
  ImageOutputs compared_answers;
  PreparedImages& unseen;
  std::vector<int> unseen_labels;
  ImageOutputs unseen_answers;
};

/// A pruned model that was measured.
struct PruneStep {
  Keeps keeps;
  MedianInterval speedup;           ///< over the dense model in the same precision: speedup_over()
  std::optional<double> predicted;  ///< by its layers' times, where those were measured
  PairedAnswers answers;            ///< on the search images, dense against pruned
  DropEstimate drop;
  double error = 0;  ///< relative_noise() on the search images
  bool pareto = false;
};

struct PruneLayer {
  std::string name;
  double kept = 1;  ///< share of the weights that are not zero, of the dense layer's
  std::int64_t macs = 0;
  double dense_ms = 0, pruned_ms = 0;
  std::optional<double> error;
  std::optional<MaskMode> rows;  ///< what fell for panels of outputs, if anything did: k or input
  std::string dense_kernel, pruned_kernel;
};

/// The pruned model in INT8 against what it was made from.
struct PrunedInt8 {
  int nodes = 0, kept = 0;  ///< QuantizedFile (pipit/detail/quantized_file.h)
  double fp32_ms = 0;       ///< of the dense model
  MedianInterval over_fp32;
  PairedAnswers dense_unseen;  ///< the dense model in fp32 against INT8
};

/// A selection that was measured in the search for a speed-up or a drop: Pruning::sketch().
struct SketchedSelection {
  double predicted = 1;  ///< by its layers' times
  double error = 0;      ///< divergence() from the dense model
  MedianInterval speedup;
};

struct PruneOutcome {
  std::string measure;  ///< measure_name()
  std::int64_t calibrated = 0;
  PrunedModel pruned;
  std::shared_ptr<const ExecutionPlan> plan;  ///< of the pruned model
  std::vector<PruneStep> steps;               ///< the slowest first
  std::vector<SketchedSelection> sketched;    ///< in the order in which they were measured
  std::size_t chosen = 0;
  double dense_ms = 0;                      ///< in the same precision
  double search_top1 = 0, unseen_top1 = 0;  ///< of the dense model in fp32
  PairedAnswers unseen;                     ///< dense in fp32 against pruned
  std::optional<PrunedInt8> int8;
  std::vector<PruneLayer> layers;
  bool hurried = false;    ///< the seconds were over before the fewest selections were measured
  double zero_rows = 0;    ///< share of the dense model's weights that zero_rows() marks: they stay zero
  double other_zeros = 0;  ///< share that is zero otherwise: fitted like other weights
  std::optional<tools::JudgedDrop> judged;  ///< where the goal is a drop
  bool passed = true;                       ///< whether the goal counts as met
  std::size_t bytes = 0, dense_bytes = 0;
  std::string
      missed;  ///< why there is no model to write; no step is chosen then, and what is of the model is not set

  bool is_chosen(std::size_t step) const { return missed.empty() && step == chosen; }
};

/// Whether a speed-up counts as reached: by the median, and nearly (3 %) by the lower end of the interval.
bool reached(const MedianInterval& speedup, double wanted);

/// How often search_pruned() fits weights at most.
int most_steps(const PruneGoal& goal);

/// Prunes, measures steps, and checks the one that is chosen on the unseen images. For a speed-up SelectionSearch says,
/// for PruneGoal::seconds, which whole selections to measure, time and error, with weights that are fitted on few
/// images; of those that are fast enough the one of the least error is fitted in full and measured once more; where it
/// then falls short (reached()) the next one follows, up to twice. For a drop the same is done for rising speeds, one
/// step for each, and the fastest taken that is good enough together with all slower ones (choose_step()). Where none
/// is surely fast, or there was time for few, the fastest that was measured is the one step. Where nothing is worth
/// writing, the outcome says why and has no more than what was measured.
PruneOutcome search_pruned(const Pruning& pruning, const PruneGoal& goal, PruneImages& images,
                           const std::function<ProgressReport(const char* stage)>& stage);

}  // namespace pipit::internal::apps
