#include "apps/measuring/prune_search.h"

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

namespace pipit::internal::apps {

namespace {

constexpr int kLayerRuns = 30;
constexpr std::size_t kFinalists = 3;  // selections that are fitted in full, for a speed-up
constexpr double kClose = 0.03;        // a speed-up may be passed by this share: it is measured no better
constexpr std::array kSpeedups{1.1,  1.2, 1.35, 1.5,
                               1.75, 2.0, 2.5,  3.0};  // predicted, of the steps for a drop
constexpr double kDropConfidence = 0.75;

double share_of_nonzeros(const Graph& graph, const Node& node, std::size_t dense) {
  const RealWeights weights = real_weights(graph, node);
  const auto zeros = std::count(weights.values().begin(), weights.values().end(), 0.0F);
  return static_cast<double>(weights.values().size() - static_cast<std::size_t>(zeros)) /
         static_cast<double>(dense);
}

class Searcher {
 public:
  Searcher(const Pruning& pruning, const PruneGoal& goal, PruneImages& images,
           const std::function<ProgressReport(const char*)>& stage)
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
    outcome_.calibrated = images_.calibrated;
    outcome_.measure = measure_name(goal_.judge_by, images_.output, "dense");
    outcome_.search_top1 = judge_.fp32_top1();
    if (goal_.keep) {
      take(goal_.global ? pruning_.global(*goal_.keep) : pruning_.uniform(*goal_.keep), std::nullopt);
    } else {
      budget_ = pruning_.budget(images_.probe, stage_("timing candidates"));
      search_.emplace(budget_.options, budget_.shared);
      goal_.speedup ? meet_speedup() : meet_drop();
    }
    std::sort(outcome_.steps.begin(), outcome_.steps.end(),
              [](const PruneStep& a, const PruneStep& b) { return a.speedup.median < b.speedup.median; });
    for (std::size_t i = 0; i < outcome_.steps.size(); ++i) {
      if (outcome_.steps[i].keeps == chosen_) outcome_.chosen = i;
    }
    mark();
    outcome_.dense_ms = quantile(dense_ms_, 0.25);
    if (!outcome_.missed.empty()) {
      outcome_.passed = false;
      return std::move(outcome_);
    }
    finish();
    count_zeros();
    return std::move(outcome_);
  }

 private:
  PruneStep& take(const Keeps& keeps, std::optional<double> predicted) {
    PrunedModel made = pruning_.prune(keeps, stage_("fitting weights"));
    made.scales = pruning_.compiler().scales(made.graph, stage_("calibrating"));
    const auto plan = pruning_.compiler().compiled(made.graph, made.scales);
    const ImageOutputs outputs = run_outputs(plan, images_.search);
    PruneStep step;
    step.keeps = keeps;
    step.predicted = predicted;
    step.answers = judge_.compare(outputs);
    step.drop = judge_.drop(outputs, outputs);
    step.speedup = timed(plan);
    choose(keeps, std::move(made));
    outcome_.steps.push_back(std::move(step));
    return outcome_.steps.back();
  }

  MedianInterval timed(const std::shared_ptr<const ExecutionPlan>& plan) {
    Session session(plan);
    return speedup_over(session, dense_, batch_, dense_ms_);
  }

  void choose(const Keeps& keeps, PrunedModel made) {
    chosen_ = keeps;
    outcome_.pruned = std::move(made);
  }

  // Measures selections until the time is up.
  void explore(double speedup, double seconds) {
    const ProgressReport progress = stage_("measuring selections");
    const Clock::time_point begin = Clock::now();
    const auto share = [&] { return milliseconds_since(begin) / 1000 / seconds; };
    for (int i = 0;; ++i) {
      const bool over = share() >= 1;
      if (over && i >= kMinSelections) return;
      std::optional<Selection> next = search_->propose(speedup);
      if (!next && i < kMinSelections) next = search_->propose_slow();
      if (!next) return;
      outcome_.hurried = outcome_.hurried || over;
      const PrunedModel made = pruning_.sketch(budget_.keeps_of(*next));
      const ImageOutputs outputs = run_outputs(pruning_.compiler().in_fp32(made.graph), images_.compared);
      const MedianInterval measured = timed(pruning_.compiler().for_times(made.graph));
      const double error =
          divergence(outputs.all, images_.compared_answers.all, outputs.values, images_.output.kind);
      search_->add(*next, error, measured.low);
      outcome_.sketched.push_back({search_->predicted_speedup(*next), error, measured});
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
    if (search_->measured().empty()) outcome_.missed = none_is_fast();
    for (const std::size_t i : finalists(*goal_.speedup)) {
      const Selection& selection = search_->measured()[i].selection;
      const PruneStep& step = take(budget_.keeps_of(selection), search_->predicted_speedup(selection));
      outcome_.passed = reached(step.speedup, *goal_.speedup);
      if (outcome_.passed) break;
    }
  }

  void meet_drop() {
    std::vector<PrunedModel> made;
    const auto take_first = [&](const std::vector<std::size_t>& best) {
      if (best.empty()) return;
      const Selection& selection = search_->measured()[best[0]].selection;
      const Keeps keeps = budget_.keeps_of(selection);
      if (keeps == chosen_) return;
      take(keeps, search_->predicted_speedup(selection));
      made.push_back(std::move(outcome_.pruned));
    };
    for (const double speedup : kSpeedups) {
      explore(speedup, goal_.seconds / std::size(kSpeedups));
      take_first(search_->best(speedup));
      // Twice the drop: the faster ones are only worse.
      if (!made.empty() && 100 * outcome_.steps.back().drop.mean > 2 * *goal_.max_drop + 1) break;
    }
    const bool sure = !made.empty();
    if (!sure) take_first(finalists(kSpeedups[0]));
    // As choose_step() has them: by falling speed, what is dense last.
    std::vector<MixedStep> steps;
    for (std::size_t i = outcome_.steps.size(); i-- > 0;) {
      const PruneStep& step = outcome_.steps[i];
      steps.push_back({0, static_cast<int>(i), 1 / step.speedup.median, step.answers, step.drop, false});
    }
    steps.push_back({0, -1, 1, {static_cast<std::int64_t>(images_.search_labels.size()), 0, 0}, {}, false});
    const bool worth = sure || (!made.empty() && outcome_.steps[0].speedup.low > 1);
    const int index = choose_step(steps, *goal_.max_drop / 100, kDropConfidence);
    const int step = index < 0 || !worth ? -1 : steps[static_cast<std::size_t>(index)].kept;
    if (step < 0) {
      outcome_.missed =
          !worth ? none_is_fast()
                 : fmt::format(
                       "no pruned model is faster than the dense one and drops at most {:g} points: "
                       "nothing is written",
                       *goal_.max_drop);
      return;
    }
    choose(outcome_.steps[static_cast<std::size_t>(step)].keeps,
           std::move(made[static_cast<std::size_t>(step)]));
  }

  std::string none_is_fast() const {
    const auto slower = [](const auto& a, const auto& b) { return a.speedup.low < b.speedup.low; };
    const auto best = std::max_element(outcome_.sketched.begin(), outcome_.sketched.end(), slower);
    if (best == outcome_.sketched.end()) return "there is nothing to remove: nothing is written";
    return fmt::format(
        "none of {} selections of what to remove is surely {} times as fast as the dense model (the best: "
        "{:.2f} [{:.2f}, {:.2f}], 95 % interval; wide on a busy machine): nothing is written",
        outcome_.sketched.size(), kSpeedups[0], best->speedup.median, best->speedup.low, best->speedup.high);
  }

  void mark() {
    std::vector<MixedStep> steps;
    for (const PruneStep& step : outcome_.steps)
      steps.push_back({0, 0, 1 / step.speedup.median, {}, step.drop, false});
    steps.push_back({0, 0, 1, {}, {}, false});
    mark_pareto(steps);
    for (std::size_t i = 0; i < outcome_.steps.size(); ++i) outcome_.steps[i].pareto = steps[i].pareto;
  }

  void finish() {
    const ProgressReport progress = stage_("checking");
    constexpr int kParts = 3;
    progress(0, kParts);
    outcome_.plan = pruning_.compiler().compiled(outcome_.pruned.graph, outcome_.pruned.scales);
    const Judge judge(goal_.judge_by, images_.output, images_.unseen_labels, images_.unseen_answers);
    outcome_.unseen_top1 = judge.fp32_top1();
    outcome_.unseen = judge.compare(run_outputs(outcome_.plan, images_.unseen));
    progress(1, kParts);
    if (goal_.max_drop) {
      outcome_.judged = detail::judged(outcome_.unseen, *goal_.max_drop);
      outcome_.passed = outcome_.judged->within;
    }
    if (pruning_.compiler().int8()) compare_with_fp32(judge);
    progress(2, kParts);
    const std::map<std::string, double> before = step_times(dense_plan_, batch_, kLayerRuns);
    const std::map<std::string, double> after = step_times(outcome_.plan, batch_, kLayerRuns);
    std::map<std::string, std::string> kernels;
    for (const Step& step : outcome_.plan->steps())
      kernels[outcome_.plan->graph().nodes()[static_cast<std::size_t>(step.node)].name] = step.kernel_name;
    const PruningMask masks = pruning_.mask_of(outcome_.steps[outcome_.chosen].keeps);
    std::set<std::string> left;
    for (const Node& node : outcome_.pruned.graph.nodes()) left.insert(node.name);
    for (const Step& step : dense_plan_->steps()) {
      const detail::StepInfo info = detail::step_info(*dense_plan_, step);
      PruneLayer layer;
      layer.name = info.name;
      layer.macs = info.macs;
      layer.dense_kernel = step.kernel_name;
      layer.pruned_kernel = kernels[info.name];
      if (before.contains(info.name)) layer.dense_ms = before.at(info.name);
      if (after.contains(info.name)) layer.pruned_ms = after.at(info.name);
      if (!left.contains(info.name) && !kernels.contains(info.name)) layer.kept = 0;
      for (const LayerMask& mask : masks) {
        if (mask.node == info.name) layer.rows = mask.mode;
      }
      const auto error = outcome_.pruned.errors.find(info.name);
      if (error != outcome_.pruned.errors.end()) {
        layer.error = error->second;
        const Node& node = weighted_node(pruning_.dense(), info.name);
        const auto size = static_cast<std::size_t>(real_weights(pruning_.dense(), node).shape.elements());
        layer.kept =
            share_of_nonzeros(outcome_.pruned.graph, weighted_node(outcome_.pruned.graph, info.name), size);
      }
      outcome_.layers.push_back(std::move(layer));
    }
    progress(kParts, kParts);
  }

  void compare_with_fp32(const Judge& judge) {
    PrunedInt8& int8 = outcome_.int8.emplace();
    int8.dense_unseen = judge.compare(run_outputs(dense_plan_, images_.unseen));
    Session pruned(outcome_.plan);
    Session fp32(pruning_.compiler().in_fp32(pruning_.dense()));
    std::vector<double> fp32_ms;
    int8.over_fp32 = speedup_over(pruned, fp32, batch_, fp32_ms);
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
    outcome_.zero_rows = rows / all;
    outcome_.other_zeros = (zeros - rows) / all;
  }

  const Pruning& pruning_;
  const PruneGoal& goal_;
  PruneImages& images_;
  const std::function<ProgressReport(const char*)>& stage_;
  std::shared_ptr<const ExecutionPlan> dense_plan_;
  Session dense_;
  std::vector<Tensor> first_;
  std::vector<ConstTensorView> batch_;  // of first_
  Judge judge_;
  Pruning::Budget budget_;
  std::optional<SelectionSearch> search_;
  std::vector<double> dense_ms_;
  Keeps chosen_;
  PruneOutcome outcome_;
};

}  // namespace

bool reached(const MedianInterval& speedup, double wanted) {
  return speedup.median >= wanted && speedup.low >= (1 - kClose) * wanted;
}

int most_steps(const PruneGoal& goal) {
  return goal.keep ? 1 : goal.speedup ? static_cast<int>(kFinalists) : static_cast<int>(std::size(kSpeedups));
}

PruneOutcome search_pruned(const Pruning& pruning, const PruneGoal& goal, PruneImages& images,
                           const std::function<ProgressReport(const char* stage)>& stage) {
  return Searcher(pruning, goal, images, stage).run();
}

}  // namespace pipit::internal::apps
