// From a goal (a share, a speed-up, a drop) to the pruned model that meets it, measured.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipit/measuring/turns.h"
#include "pipit/prune.h"
#include "pipit/pruning/pruning.h"

namespace pipit::internal::detail {

/// Selections that are measured for a speed-up however long that takes.
inline constexpr int kMinSelections = 3;

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

struct PruneOutcome {
  /// All but what only the file's writer and reader know: bytes, layers in INT8, images that were not used, JSON.
  tools::PrunedModel found;
  PrunedGraph pruned;                         ///< where found.problem is empty
  std::shared_ptr<const ExecutionPlan> plan;  ///< of that
  bool removes_rows = false;                  ///< some layers of it lost rows
};

/// How often search_pruned() fits weights at most.
int most_steps(const tools::PruneGoal& goal);
/// How long it measures selections before it fits weights for the time `step`, counted from 0, in s.
double search_seconds(const tools::PruneGoal& goal, int step);

/// How many times as fast as the dense model a pruned one is.
struct SpeedupMeasures {
  using Measure =
      std::function<MedianInterval(Session& pruned, Session& dense, std::span<const ConstTensorView> inputs,
                                   std::vector<double>& dense_ms)>;
  Measure estimate = [](auto& session, auto& base, auto inputs, auto& base_ms) {
    return estimated_speedup(session, base, inputs, base_ms);
  };                                  ///< of what the search compares
  Measure measure = benched_speedup;  ///< of what may be written
};

/// Prunes, measures steps, and checks the one that is chosen on the unseen images. For a speed-up SelectionSearch says,
/// for search_seconds(), which whole selections to measure, time and error, with weights that are fitted on few images;
/// of those that are fast enough the one of the least error is fitted in full and its speed-up measured afresh
/// (SpeedupMeasures::measure). Where that misses the goal (reaches()), the search goes on for what makes up for it
/// (corrected_target()), up to three times; if all miss it, the fastest one is the outcome, which has not passed. For a
/// drop selections are measured for rising speeds, one step is fitted for each, and the fastest taken that is good
/// enough together with all slower ones (choose_step()). Where none is surely fast, or there was time for few, the
/// fastest that was measured is the one step. Where nothing is worth writing, the outcome says why and has no more than
/// what was measured.
PruneOutcome search_pruned(const Pruning& pruning, const tools::PruneGoal& goal, PruneImages& images,
                           const std::function<ImagesDone(const char* stage)>& stage,
                           const SpeedupMeasures& measures = {});

}  // namespace pipit::internal::detail
