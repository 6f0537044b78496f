#include "pipit/measuring/precision_ladder.h"

#include <algorithm>
#include <map>

#include "engine/base/statistics.h"
#include "pipit/measuring/timing.h"
#include "pipit/measuring/turns.h"

namespace pipit::internal::detail {

namespace {

constexpr int kProfiledRuns = 30;
constexpr double kStepMs = 500;  // for the time of a step, at most

}  // namespace

Judge::Judge(JudgeBy judge_by, const ClassOutput& output, const std::vector<int>& labels,
             const ImageOutputs& fp32)
    : judge_by_(judge_by), output_(output), fp32_(answers(fp32)) {
  for (std::int64_t i = 0; i < std::ssize(fp32_); ++i) {
    if (const std::string problem = scores_problem(output, fp32.image(i)); !problem.empty())
      fail("the output for image {} of {} has {}", i + 1, fp32_.size(), problem);
  }
  if (judge_by_ == JudgeBy::model) {
    right_ = fp32_;
    return;
  }
  for (const int label : labels) right_.push_back({label});
  fp32_margins_ = margins(fp32);
}

Judge::Answers Judge::answers(const ImageOutputs& outputs) const {
  ClassOutput output = output_;
  // The image's class says nothing of its other tags.
  if (judge_by_ == JudgeBy::labels && output.are_tags()) output.kind = ScoreKind::logits;
  Answers answers;
  const auto images = static_cast<std::int64_t>(outputs.all.size() / outputs.values);
  for (std::int64_t i = 0; i < images; ++i) answers.push_back(answer(output, outputs.image(i)));
  return answers;
}

std::string measure_name(JudgeBy judge_by, const ClassOutput& output, const std::string& base) {
  if (judge_by == JudgeBy::model) return "agreement with " + base;
  return output.yes_or_no() ? "accuracy" : "top-1";
}

double Judge::fp32_top1() const {
  std::int64_t hits = 0;
  for (std::size_t i = 0; i < fp32_.size(); ++i) hits += fp32_[i] == right_[i] ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(fp32_.size());
}

PairedAnswers Judge::compare(const ImageOutputs& outputs) const {
  const Answers own = answers(outputs);
  PairedAnswers paired;
  for (std::size_t i = 0; i < own.size(); ++i) paired.add(fp32_[i] == right_[i], own[i] == right_[i]);
  return paired;
}

DropEstimate Judge::drop(const ImageOutputs& outputs, const ImageOutputs& int8) const {
  if (judge_by_ == JudgeBy::model) return measured_drop(compare(outputs));
  return expected_drop(fp32_margins_, margins(outputs), margin_width(fp32_margins_, margins(int8)));
}

std::vector<float> Judge::margins(const ImageOutputs& outputs) const {
  std::vector<float> margins;
  for (std::size_t i = 0; i < right_.size(); ++i) {
    const std::span<const float> row = outputs.image(static_cast<std::int64_t>(i));
    const auto right = static_cast<std::size_t>(right_[i][0]);
    if (output_.yes_or_no()) {
      const float above = row[0] - output_.threshold_score();
      margins.push_back(right == 1 ? above : -above);
      continue;
    }
    float other = -std::numeric_limits<float>::max();
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c != right) other = std::max(other, row[c]);
    }
    margins.push_back(row[right] - other);
  }
  return margins;
}

std::set<std::string> Search::kept(const MixedStep& step) const {
  const std::vector<std::string>& order = ladders[static_cast<std::size_t>(step.order)].order;
  return {order.begin(), order.begin() + step.kept};
}

std::vector<MixedStep> Search::all_steps() const {
  std::vector<MixedStep> all;
  std::set<std::set<std::string>> known;
  for (const Ladder& ladder : ladders) {
    for (const MixedStep& step : ladder.steps) {
      if (known.insert(kept(step)).second) all.push_back(step);
    }
  }
  mark_pareto(all);
  return all;
}

std::optional<MixedStep> Search::choose(double max_drop, double confidence) const {
  const MixedStep* best = nullptr;
  for (const Ladder& ladder : ladders) {
    const int index = choose_step(ladder.steps, max_drop, confidence);
    if (index < 0) continue;
    const MixedStep& step = ladder.steps[static_cast<std::size_t>(index)];
    if (best == nullptr || step.ms < best->ms) best = &step;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

namespace {

struct Orders {
  std::vector<std::string> by_noise;
  std::vector<std::string> by_accuracy;
};

Orders find_orders(const MixedModel& model, PreparedImages& some, PreparedImages& images,
                   std::span<const ConstTensorView> batch, const Judge& judge, const ImageOutputs& int8,
                   const ImagesDone& progress) {
  const auto candidates = static_cast<std::int64_t>(model.layers().size() + model.followers().size());
  std::int64_t shares_total = 0;
  const LayerShares shares = measure_shares(model, some, true, [&](std::int64_t done, std::int64_t total) {
    shares_total = total;
    progress(done, total + candidates);
  });
  const std::map<std::string, double> slow = step_times(model.in_floating_point(), batch, kProfiledRuns);
  const std::map<std::string, double> fast = step_times(model.in_int8(), batch, kProfiledRuns);
  // A follower that another kernel computes too has no step and no time of its own.
  const auto time = [](const std::map<std::string, double>& times, const std::string& node) {
    const auto found = times.find(node);
    return found == times.end() ? 0 : found->second;
  };
  const auto extra_ms = [&](const std::string& node) { return time(slow, node) - time(fast, node); };

  Orders orders;
  std::vector<LayerCost> costs;
  for (const LayerShare& share : shares.layers)
    costs.push_back({share.layer, share.cause(shares.all), extra_ms(share.layer)});
  orders.by_noise = keeping_order(std::move(costs));
  costs.clear();
  const double drop = judge.drop(int8, int8).mean;
  for (const std::string& layer : orders.by_noise) {
    const ImageOutputs without = run_outputs(model.in_int8({layer}), images);
    costs.push_back({layer, drop - judge.drop(without, int8).mean, extra_ms(layer)});
    progress(shares_total + static_cast<std::int64_t>(costs.size()), shares_total + candidates);
  }
  orders.by_accuracy = keeping_order(std::move(costs));
  return orders;
}

}  // namespace

Search search_mixed(const MixedModel& model, PreparedImages& some, PreparedImages& images, const Judge& judge,
                    bool with_bf16, const ImagesDone& judging, const ImagesDone& climbing) {
  const std::vector<Tensor> first = first_batch(some);
  const std::vector<ConstTensorView> batch = views_of(first);
  const ImageOutputs int8 = run_outputs(model.in_int8(), images);
  Orders orders = find_orders(model, some, images, batch, judge, int8, judging);
  Search search;
  search.order_names = {"noise", "accuracy"};
  const bool ends_in_fp32 = model.floating_point_is_fp32();
  search.ladders = {{std::move(orders.by_noise), {}}, {std::move(orders.by_accuracy), {}}};

  Session base(model.in_int8());
  std::vector<double> base_ms;
  std::map<std::set<std::string>, MixedStep> known;  // times relative to the base
  const std::vector<int> counts = kept_counts(static_cast<int>(search.ladders[0].order.size()));
  std::int64_t done = 0;
  for (std::size_t l = 0; l < search.ladders.size(); ++l) {
    for (const int count : counts) {
      MixedStep step;
      step.order = static_cast<int>(l);
      step.kept = count;
      const std::set<std::string> kept = search.kept(step);
      const auto found = known.find(kept);
      if (found != known.end()) {
        step.ms = found->second.ms;
        step.answers = found->second.answers;
        step.drop = found->second.drop;
      } else {
        const bool last = count == counts.back();
        const auto plan = last ? model.in_floating_point() : model.in_int8(kept);
        const ImageOutputs outputs = run_outputs(plan, images);
        step.answers = judge.compare(outputs);
        if (!last || !ends_in_fp32)
          step.drop = judge.drop(outputs, int8);  // fp32 loses nothing, and that is certain
        Session session(plan);
        // Neighbouring steps differ by more than a moment's noise: a ladder has many.
        step.ms = count == 0 ? 1 : 1 / estimated_speedup(session, base, batch, base_ms, kStepMs).median;
        known.emplace(kept, step);
      }
      search.ladders[l].steps.push_back(step);
      climbing(++done, static_cast<std::int64_t>(counts.size() * search.ladders.size()));
    }
  }
  if (!ends_in_fp32) {
    Session session(model.in_fp32());
    search.fp32_ms = 1 / estimated_speedup(session, base, batch, base_ms, kStepMs).median;
  }
  const bool ends_in_bf16 = model.kept_as() == Precision::bf16;
  if (with_bf16 && !ends_in_bf16) {
    const auto plan = model.in_bf16();
    const ImageOutputs outputs = run_outputs(plan, images);
    MixedStep& step = search.bf16.emplace();
    step.answers = judge.compare(outputs);
    step.drop = judge.drop(outputs, int8);
    Session session(plan);
    step.ms = 1 / estimated_speedup(session, base, batch, base_ms, kStepMs).median;
  }
  search.int8_ms = quantile(std::move(base_ms), 0.25);
  if (search.bf16) search.bf16->ms *= search.int8_ms;
  for (Ladder& ladder : search.ladders) {
    for (MixedStep& step : ladder.steps) step.ms *= search.int8_ms;
  }
  if (ends_in_bf16) search.bf16 = search.ladders[0].steps.back();
  search.fp32_ms = ends_in_fp32 ? search.ladders[0].steps.back().ms : search.fp32_ms * search.int8_ms;
  return search;
}

}  // namespace pipit::internal::detail
