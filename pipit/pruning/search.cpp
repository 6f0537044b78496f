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
#include "sparsity/divergence.h"

namespace pipit::internal::detail {

namespace {

constexpr int kLayerRuns = 30;
constexpr std::size_t kFinalists = 3;  // selections that are fitted in full, for a speed-up
constexpr double kClose = 0.03;        // a speed-up may be passed by this share: it is measured no better
constexpr std::array kSpeedups{1.1,  1.2, 1.35, 1.5,
                               1.75, 2.0, 2.5,  3.0};  // predicted, of the steps for a drop
constexpr double kDropConfidence = 0.75;

// A pruned model that was measured.
struct MeasuredStep {
  Keeps keeps;
  MedianInterval speedup;           // over the dense model in the same precision: speedup_over()
  std::optional<double> predicted;  // by its layers' times, where those were measured
  PairedAnswers answers;            // on the search images, dense against pruned
  DropEstimate drop;
  bool pareto = false;
};

tools::Speedup to_speedup(const MedianInterval& speedup) {
  return {speedup.median, speedup.low, speedup.high};
}

// By the median, and nearly by the lower end of the interval.
bool reached(const MedianInterval& speedup, double wanted) {
  return speedup.median >= wanted && speedup.low >= (1 - kClose) * wanted;
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
           const std::function<ImagesDone(const char*)>& stage)
      : pruning_(pruning),
        goal_(goal),
        images_(images),
        stage_(stage),
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
    } else {
      budget_ = pruning_.budget(images_.probe, stage_("timing candidates"));
      search_.emplace(budget_.options, budget_.shared);
      goal_.speedup ? meet_speedup() : meet_drop();
    }
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
    const auto plan = pruning_.compiler().compiled(made.graph, made.scales);
    const ImageOutputs outputs = run_outputs(plan, images_.search);
    MeasuredStep step;
    step.keeps = keeps;
    step.predicted = predicted;
    step.answers = judge_.compare(outputs);
    step.drop = judge_.drop(outputs, outputs);
    step.speedup = timed(plan);
    choose(keeps, std::move(made));
    steps_.push_back(std::move(step));
    return steps_.back();
  }

  MedianInterval timed(const std::shared_ptr<const ExecutionPlan>& plan) {
    Session session(plan);
    return speedup_over(session, dense_, batch_, dense_ms_);
  }

  void choose(const Keeps& keeps, PrunedGraph made) {
    chosen_ = keeps;
    pruned_ = std::move(made);
  }

  // Measures selections until the time is up.
  void explore(double speedup, double seconds) {
    const ImagesDone progress = stage_("measuring selections");
    const Clock::time_point begin = Clock::now();
    const auto share = [&] { return milliseconds_since(begin) / 1000 / seconds; };
    for (int i = 0;; ++i) {
      const bool over = share() >= 1;
      if (over && i >= kMinSelections) return;
      std::optional<Selection> next = search_->propose(speedup);
      if (!next && i < kMinSelections) next = search_->propose_slow();
      if (!next) return;
      found_.time_was_short = found_.time_was_short || over;
      const PrunedGraph made = pruning_.sketch(budget_.keeps_of(*next));
      const ImageOutputs outputs = run_outputs(pruning_.compiler().in_fp32(made.graph), images_.compared);
      const MedianInterval measured = timed(pruning_.compiler().for_times(made.graph));
      const double error =
          divergence(outputs.all, images_.compared_answers.all, outputs.values, images_.output.kind);
      search_->add(*next, error, measured.low);
      found_.selections.push_back({search_->predicted_speedup(*next), to_speedup(measured), error});
      progress(static_cast<std::int64_t>(1000 * std::min(share(), 1.0)), 1000);
    }
  }

  // Selections to fit in full: of those that are fast enough the ones of the least error, or the fastest one.
  std::vector<std::size_t> finalists(double speedup) const {
    std::vector<std::size_t> best = search_->best(speedup);
    const std::vector<MeasuredSelection>& all = search_->measured();
    if (best.empty() && !all.empty()) {
      const auto slower = [](const auto& a, const auto& b) { return a.speedup < b.speedup; };
      best.push_back(
          static_cast<std::size_t>(std::max_element(all.begin(), all.end(), slower) - all.begin()));
    }
    best.resize(std::min(best.size(), kFinalists));
    return best;
  }

  void meet_speedup() {
    explore(*goal_.speedup, goal_.seconds);
    if (search_->measured().empty()) found_.problem = none_is_fast();
    for (const std::size_t i : finalists(*goal_.speedup)) {
      const Selection& selection = search_->measured()[i].selection;
      const MeasuredStep& step = take(budget_.keeps_of(selection), search_->predicted_speedup(selection));
      found_.passed = reached(step.speedup, *goal_.speedup);
      if (found_.passed) break;
    }
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
      explore(speedup, goal_.seconds / std::size(kSpeedups));
      take_first(search_->best(speedup));
      // Twice the drop: the faster ones are only worse.
      if (!made.empty() && 100 * steps_.back().drop.mean > 2 * *goal_.max_drop + 1) break;
    }
    const bool sure = !made.empty();
    if (!sure) take_first(finalists(kSpeedups[0]));
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
    plan_ = pruning_.compiler().compiled(pruned_.graph, pruned_.scales);
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
        if (mask.node == info.name)
          layer.rows = mask.mode == MaskMode::input ? tools::PrunedRows::channel : tools::PrunedRows::tap;
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
    int8.over_fp32 = to_speedup(speedup_over(pruned, fp32, batch_, fp32_ms));
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
  std::shared_ptr<const ExecutionPlan> plan_;
};

}  // namespace

int most_steps(const tools::PruneGoal& goal) {
  return goal.keep ? 1 : goal.speedup ? static_cast<int>(kFinalists) : static_cast<int>(std::size(kSpeedups));
}

PruneOutcome search_pruned(const Pruning& pruning, const tools::PruneGoal& goal, PruneImages& images,
                           const std::function<ImagesDone(const char* stage)>& stage) {
  return Searcher(pruning, goal, images, stage).run();
}

}  // namespace pipit::internal::detail
