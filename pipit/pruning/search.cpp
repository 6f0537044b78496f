#include "pipit/pruning/search.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "pipit/detail/step_info.h"
#include "pipit/measuring/drop_json.h"
#include "pipit/measuring/timing.h"
#include "pipit/pruning/speedup_goal.h"
#include "sparsity/divergence.h"

namespace pipit::internal::detail {

namespace {

constexpr int kLayerRuns = 30;
constexpr int kAttempts = 4;           // selections that are fitted in full, for a speed-up
constexpr double kLaterSearch = 0.25;  // of the seconds, before each of them but the first
constexpr std::array kSpeedups{1.1,  1.2, 1.35, 1.5,
                               1.75, 2.0, 2.5,  3.0};  // predicted, of the steps for a drop
constexpr double kDropConfidence = 0.75;

// A pruned model that was measured.
struct MeasuredStep {
  Keeps keeps;
  MedianInterval speedup;           // over the dense model in the same precision, in the search
  std::optional<double> predicted;  // by its layers' times, where those were measured
  PairedAnswers answers;            // on the search images, dense against pruned
  DropEstimate drop;
  bool pareto = false;
};

tools::Speedup to_speedup(const MedianInterval& speedup) {
  return {speedup.median, speedup.low, speedup.high};
}

double share_of_nonzeros(const Graph& graph, const Node& node, std::size_t dense) {
  const RealWeights weights = real_weights(graph, node);
  const auto zeros = std::count(weights.values().begin(), weights.values().end(), 0.0F);
  return static_cast<double>(weights.values().size() - static_cast<std::size_t>(zeros)) /
         static_cast<double>(dense);
}

class Searcher {
 public:
  Searcher(const Pruning& pruning, const tools::PruneGoal& goal, PruneImages& images,
           const std::function<ImagesDone(const char*)>& stage, const SpeedupMeasures& measures)
      : pruning_(pruning),
        goal_(goal),
        images_(images),
        stage_(stage),
        measures_(measures),
        dense_plan_(pruning.compiler().for_times(pruning.dense())),
        dense_(dense_plan_),
        first_(first_batch(images.probe)),
        batch_(views_of(first_)),
        judge_(goal.judge_by, images.output, images.search_labels, images.search_answers) {}

  PruneOutcome run() {
    found_.calibration_images = images_.calibrated;
    found_.measure = measure_name(goal_.judge_by, images_.output, "dense");
    found_.dense_right = judge_.fp32_top1();
    if (goal_.keep) {
      take(goal_.global ? pruning_.global(*goal_.keep) : pruning_.uniform(*goal_.keep), std::nullopt);
      steps_[0].speedup = measure_afresh();
    } else {
      budget_ = pruning_.budget(images_.probe, stage_("timing candidates"));
      search_.emplace(budget_.options, budget_.shared);
      goal_.speedup ? meet_speedup() : meet_drop();
    }
    if (found_.problem.empty()) found_.speedup = to_speedup(*measured_);
    std::sort(steps_.begin(), steps_.end(), [](const MeasuredStep& a, const MeasuredStep& b) {
      return a.speedup.median < b.speedup.median;
    });
    mark();
    found_.dense_ms = quantile(dense_ms_, 0.25);
    for (const MeasuredStep& step : steps_) found_.steps.push_back(step_of(step));
    if (found_.problem.empty()) {
      // The last one of those that are equal.
      const auto chosen = std::find_if(steps_.rbegin(), steps_.rend(),
                                       [&](const MeasuredStep& step) { return step.keeps == chosen_; });
      found_.steps[static_cast<std::size_t>(steps_.rend() - chosen) - 1].chosen = true;
      finish();
      count_zeros();
    } else {
      found_.passed = false;
    }
    if (!goal_.keep) found_.reached = found_.passed;
    return {std::move(found_), std::move(pruned_), std::move(plan_), !pruning_.mask_of(chosen_).empty()};
  }

 private:
  tools::PruneStep step_of(const MeasuredStep& step) const {
    tools::PruneStep result;
    result.speedup = to_speedup(step.speedup);
    result.ms = found_.dense_ms / step.speedup.median;
    result.predicted = step.predicted;
    result.drop = drop_of(step.answers, found_.dense_right);
    result.expected_drop = 100 * step.drop.mean;
    result.expected_drop_error = 100 * step.drop.standard_error;
    result.pareto = step.pareto;
    return result;
  }

  MeasuredStep& take(const Keeps& keeps, std::optional<double> predicted) {
    PrunedGraph made = pruning_.prune(keeps, stage_("fitting weights"));
    made.scales = pruning_.compiler().scales(made.graph, stage_("calibrating"));
    plan_ = pruning_.compiler().compiled(made.graph, made.scales);
    const ImageOutputs outputs = run_outputs(plan_, images_.search);
    MeasuredStep step;
    step.keeps = keeps;
    step.predicted = predicted;
    step.answers = judge_.compare(outputs);
    step.drop = judge_.drop(outputs, outputs);
    if (!goal_.keep) step.speedup = estimated(plan_);
    choose(keeps, std::move(made));
    steps_.push_back(std::move(step));
    return steps_.back();
  }

  MedianInterval estimated(const std::shared_ptr<const ExecutionPlan>& plan) {
    Session session(plan);
    return measures_.estimate(session, dense_, batch_, dense_ms_);
  }

  // The speedup of what is chosen. The model was chosen by times that are the best of many, so they are too good.
  const MedianInterval& measure_afresh() {
    const ImagesDone progress = stage_("timing the result");
    progress(0, 1);
    Session session(plan_);
    measured_ = measures_.measure(session, dense_, batch_, dense_ms_);
    progress(1, 1);
    return *measured_;
  }

  void choose(const Keeps& keeps, PrunedGraph made) {
    chosen_ = keeps;
    pruned_ = std::move(made);
  }

  // Measures selections until the time is up, and at least `least`.
  void explore(double speedup, double seconds, int least) {
    const ImagesDone progress = stage_("measuring selections");
    const Clock::time_point begin = Clock::now();
    const auto share = [&] { return milliseconds_since(begin) / 1000 / seconds; };
    for (int i = 0;; ++i) {
      const bool over = share() >= 1;
      if (over && i >= least) return;
      std::optional<Selection> next = search_->propose(speedup);
      if (!next && i < least) next = search_->propose_slow();
      if (!next) return;
      found_.time_was_short = found_.time_was_short || over;
      const PrunedGraph made = pruning_.sketch(budget_.keeps_of(*next));
      const ImageOutputs outputs = run_outputs(pruning_.compiler().in_fp32(made.graph), images_.compared);
      const MedianInterval measured = estimated(pruning_.compiler().for_times(made.graph));
      const double error =
          divergence(outputs.all, images_.compared_answers.all, outputs.values, images_.output.kind);
      search_->add(*next, error, measured.low);
      found_.selections.push_back({search_->predicted_speedup(*next), to_speedup(measured), error});
      progress(static_cast<std::int64_t>(1000 * std::min(share(), 1.0)), 1000);
    }
  }

  // The selection to fit in full next: of those that are fast enough the one of the least error, or the fastest one, if
  // it is faster than the last that was fitted. `taken`: those that were fitted.
  std::optional<std::size_t> finalist(double speedup, const std::vector<std::size_t>& taken) const {
    const std::vector<MeasuredSelection>& all = search_->measured();
    const auto is_taken = [&](std::size_t i) { return std::ranges::find(taken, i) != taken.end(); };
    for (const std::size_t i : search_->best(speedup)) {
      if (!is_taken(i)) return i;
    }
    std::optional<std::size_t> fastest;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_taken(i) && (!fastest || all[i].speedup > all[*fastest].speedup)) fastest = i;
    }
    const bool faster = fastest && (taken.empty() || all[*fastest].speedup > all[taken.back()].speedup);
    return faster ? fastest : std::nullopt;
  }

  // Each model that misses the target makes the search stricter. If all of them do, the fastest one is left.
  void meet_speedup() {
    struct Attempt {
      Keeps keeps;
      PrunedGraph pruned;
      std::shared_ptr<const ExecutionPlan> plan;
      MedianInterval measured;
    };
    std::optional<Attempt> best;
    std::vector<std::size_t> taken;
    found_.passed = false;
    double wanted = *goal_.speedup;
    for (int attempt = 0; attempt < kAttempts && !found_.passed; ++attempt) {
      explore(wanted, search_seconds(goal_, attempt), attempt == 0 ? kMinSelections : 1);
      const std::optional<std::size_t> next = finalist(wanted, taken);
      if (!next) break;
      taken.push_back(*next);
      const MeasuredSelection& selection = search_->measured()[*next];
      take(budget_.keeps_of(selection.selection), search_->predicted_speedup(selection.selection));
      const MedianInterval measured = measure_afresh();
      found_.passed = reaches(measured, *goal_.speedup);
      wanted = corrected_target(*goal_.speedup, wanted, selection.speedup, measured);
      if (!best || found_.passed || measured.median > best->measured.median)
        best = Attempt{chosen_, std::move(pruned_), plan_, measured};
    }
    if (!best) {
      found_.problem = none_is_fast();
      return;
    }
    choose(best->keeps, std::move(best->pruned));
    plan_ = std::move(best->plan);
    measured_ = best->measured;
    refuse_slower();
  }

  void meet_drop() {
    std::vector<PrunedGraph> made;
    const auto take_first = [&](const std::vector<std::size_t>& best) {
      if (best.empty()) return;
      const Selection& selection = search_->measured()[best[0]].selection;
      const Keeps keeps = budget_.keeps_of(selection);
      if (keeps == chosen_) return;
      take(keeps, search_->predicted_speedup(selection));
      made.push_back(std::move(pruned_));
    };
    for (const double speedup : kSpeedups) {
      explore(speedup, search_seconds(goal_, 0), kMinSelections);
      take_first(search_->best(speedup));
      // Twice the drop: the faster ones are only worse.
      if (!made.empty() && 100 * steps_.back().drop.mean > 2 * *goal_.max_drop + 1) break;
    }
    const bool sure = !made.empty();
    if (const auto fastest = sure ? std::nullopt : finalist(kSpeedups[0], {})) take_first({*fastest});
    // As choose_step() has them: by falling speed, what is dense last.
    std::vector<MixedStep> steps;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const MeasuredStep& step = steps_[i];
      steps.push_back({0, static_cast<int>(i), 1 / step.speedup.median, step.answers, step.drop, false});
    }
    steps.push_back({0, -1, 1, {static_cast<std::int64_t>(images_.search_labels.size()), 0, 0}, {}, false});
    const bool worth = sure || (!made.empty() && steps_[0].speedup.low > 1);
    const int index = choose_step(steps, *goal_.max_drop / 100, kDropConfidence);
    const int step = index < 0 || !worth ? -1 : steps[static_cast<std::size_t>(index)].kept;
    if (step < 0) {
      found_.problem =
          !worth ? none_is_fast()
                 : fmt::format(
                       "no pruned model is faster than the dense one and drops at most {:g} points: "
                       "nothing is written",
                       *goal_.max_drop);
      return;
    }
    choose(steps_[static_cast<std::size_t>(step)].keeps, std::move(made[static_cast<std::size_t>(step)]));
    plan_ = pruning_.compiler().compiled(pruned_.graph, pruned_.scales);
    measure_afresh();
    refuse_slower();
  }

  // Where the measured model is no faster than the dense one there is nothing to write.
  void refuse_slower() {
    if (measured_->median > 1) return;
    found_.problem = fmt::format(
        "the chosen model is not faster than the dense one: {:.2f} [{:.2f}, {:.2f}] times as fast (95 % "
        "interval), measured after the search; nothing is written",
        measured_->median, measured_->low, measured_->high);
  }

  std::string none_is_fast() const {
    const auto slower = [](const auto& a, const auto& b) { return a.speedup.low < b.speedup.low; };
    const auto best = std::max_element(found_.selections.begin(), found_.selections.end(), slower);
    if (best == found_.selections.end()) return "there is nothing to remove: nothing is written";
    return fmt::format(
        "none of {} selections of what to remove is certain to be {} times as fast as the dense model (the "
        "best: "
        "{:.2f} [{:.2f}, {:.2f}], 95 % interval; wide on a busy machine): nothing is written",
        found_.selections.size(), kSpeedups[0], best->speedup.median, best->speedup.low, best->speedup.high);
  }

  void mark() {
    std::vector<MixedStep> steps;
    for (const MeasuredStep& step : steps_)
      steps.push_back({0, 0, 1 / step.speedup.median, {}, step.drop, false});
    steps.push_back({0, 0, 1, {}, {}, false});
    mark_pareto(steps);
    for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].pareto = steps[i].pareto;
  }

  void finish() {
    const ImagesDone progress = stage_("checking");
    constexpr int kParts = 3;
    progress(0, kParts);
    const Judge judge(goal_.judge_by, images_.output, images_.unseen_labels, images_.unseen_answers);
    const PairedAnswers unseen = judge.compare(run_outputs(plan_, images_.unseen));
    found_.unseen = drop_of(unseen, judge.fp32_top1());
    progress(1, kParts);
    if (goal_.max_drop) {
      found_.judged = judged(unseen, *goal_.max_drop);
      found_.passed = found_.judged->within;
    }
    if (pruning_.compiler().int8()) compare_with_fp32(judge);
    progress(2, kParts);
    const std::map<std::string, double> before = step_times(dense_plan_, batch_, kLayerRuns);
    const std::map<std::string, double> after = step_times(plan_, batch_, kLayerRuns);
    std::map<std::string, std::string> kernels;
    for (const Step& step : plan_->steps())
      kernels[plan_->graph().nodes()[static_cast<std::size_t>(step.node)].name] = step.kernel_name;
    const PruningMask masks = pruning_.mask_of(chosen_);
    std::set<std::string> left;
    for (const Node& node : pruned_.graph.nodes()) left.insert(node.name);
    for (const Step& step : dense_plan_->steps()) {
      const StepInfo info = step_info(*dense_plan_, step);
      tools::PrunedLayer layer;
      layer.name = info.name;
      layer.macs = info.macs;
      layer.dense_kernel = step.kernel_name;
      layer.pruned_kernel = kernels[info.name];
      if (before.contains(info.name)) layer.dense_ms = before.at(info.name);
      if (after.contains(info.name)) layer.pruned_ms = after.at(info.name);
      if (!left.contains(info.name) && !kernels.contains(info.name)) layer.kept = 0;
      for (const LayerMask& mask : masks) {
        if (mask.node != info.name) continue;
        layer.rows = mask.mode == MaskMode::input ? tools::PrunedRows::channel : tools::PrunedRows::tap;
        layer.panel = mask.panel;
      }
      const auto error = pruned_.errors.find(info.name);
      if (error != pruned_.errors.end()) {
        layer.error = error->second;
        const Node& node = weighted_node(pruning_.dense(), info.name);
        const auto size = static_cast<std::size_t>(real_weights(pruning_.dense(), node).shape.elements());
        layer.kept = share_of_nonzeros(pruned_.graph, weighted_node(pruned_.graph, info.name), size);
      }
      found_.layers.push_back(std::move(layer));
    }
    double kept = 0, all = 0;
    for (const tools::PrunedLayer& layer : found_.layers) {
      kept += layer.kept * static_cast<double>(layer.macs);
      all += static_cast<double>(layer.macs);
    }
    if (all > 0) found_.macs_kept = kept / all;
    progress(kParts, kParts);
  }

  void compare_with_fp32(const Judge& judge) {
    tools::PrunedInt8& int8 = found_.int8.emplace();
    int8.dense_unseen = drop_of(judge.compare(run_outputs(dense_plan_, images_.unseen)), found_.unseen.base);
    Session pruned(plan_);
    Session fp32(pruning_.compiler().in_fp32(pruning_.dense()));
    std::vector<double> fp32_ms;
    int8.over_fp32 = to_speedup(measures_.measure(pruned, fp32, batch_, fp32_ms));
    int8.fp32_ms = quantile(std::move(fp32_ms), 0.25);
  }

  void count_zeros() {
    double all = 0, zeros = 0, rows = 0;
    const Graph& dense = pruning_.dense();
    for (const Node& node : dense.nodes()) {
      if (!has_constant_weights(dense, node)) continue;
      const RealWeights weights = real_weights(dense, node);
      const auto* conv = layer_if<Conv>(node);
      const std::vector<std::uint8_t> marks =
          zero_rows(weights.values(), weights.shape, conv == nullptr ? 1 : conv->attributes().groups);
      all += static_cast<double>(marks.size());
      rows += static_cast<double>(std::count(marks.begin(), marks.end(), 1));
      zeros += static_cast<double>(std::count(weights.values().begin(), weights.values().end(), 0.0F));
    }
    found_.zero_rows = rows / all;
    found_.other_zeros = (zeros - rows) / all;
  }

  const Pruning& pruning_;
  const tools::PruneGoal& goal_;
  PruneImages& images_;
  const std::function<ImagesDone(const char*)>& stage_;
  const SpeedupMeasures& measures_;
  std::shared_ptr<const ExecutionPlan> dense_plan_;
  Session dense_;
  std::vector<Tensor> first_;
  std::vector<ConstTensorView> batch_;  // of first_
  Judge judge_;
  Pruning::Budget budget_;
  std::optional<SelectionSearch> search_;
  std::vector<double> dense_ms_;
  std::vector<MeasuredStep> steps_;
  Keeps chosen_;
  tools::PrunedModel found_;
  PrunedGraph pruned_;
  std::shared_ptr<const ExecutionPlan> plan_;  // of pruned_
  std::optional<MedianInterval> measured_;     // the speedup of pruned_, after the search
};

}  // namespace

int most_steps(const tools::PruneGoal& goal) {
  return goal.keep ? 1 : goal.speedup ? kAttempts : static_cast<int>(std::size(kSpeedups));
}

double search_seconds(const tools::PruneGoal& goal, int step) {
  if (goal.keep) return 0;
  if (goal.max_drop) return goal.seconds / static_cast<double>(std::size(kSpeedups));
  return step == 0 ? goal.seconds : kLaterSearch * goal.seconds;
}

PruneOutcome search_pruned(const Pruning& pruning, const tools::PruneGoal& goal, PruneImages& images,
                           const std::function<ImagesDone(const char* stage)>& stage,
                           const SpeedupMeasures& measures) {
  return Searcher(pruning, goal, images, stage, measures).run();
}

}  // namespace pipit::internal::detail
