#include "apps/commands/prune_report.h"
#include "pipit/measuring/drop_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/display/drop_text.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "engine/platform/host_memory.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

constexpr double kSayZeros = 5e-4;  // of the weights

nlohmann::ordered_json speed_json(const MedianInterval& speedup) {
  return {{"speedup", speedup.median}, {"speedup_interval95", {speedup.low, speedup.high}}};
}

nlohmann::ordered_json predicted_json(const std::optional<double>& predicted) {
  return predicted ? nlohmann::ordered_json(*predicted) : nlohmann::ordered_json();
}

std::string speed_text(const MedianInterval& speedup) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", speedup.median, speedup.low, speedup.high);
}

std::string hurried_note(const PruneGoal& goal) {
  return fmt::format(
      "--search-seconds {:g} was short: it ended before {} selections, the minimum, were measured for a "
      "speed-up; with more time a better one may be found",
      goal.seconds, kMinSelections);
}

// What is said of a speed-up that was asked for.
std::string reached_text(double wanted, const MedianInterval& speedup) {
  if (speedup.low >= wanted) return "reached";
  if (reached(speedup, wanted)) return "reached by the median; the 95 % interval begins a little below";
  if (speedup.high < wanted) return "not reached";
  return fmt::format("not certain: the 95 % interval holds {:g}; was the machine busy?", wanted);
}

double mean_kept(const PruneOutcome& outcome) {
  double kept = 0, all = 0;
  for (const PruneLayer& layer : outcome.layers) {
    kept += layer.kept * static_cast<double>(layer.macs);
    all += static_cast<double>(layer.macs);
  }
  return all > 0 ? kept / all : 1;
}

std::vector<std::string> notes_on(const PruneSource& source, const PruneGoal& goal,
                                  const PruneOutcome& outcome) {
  const Keeps& keeps = outcome.steps[outcome.chosen].keeps;
  const auto falls_from = [](const std::map<std::string, double>& layers) {
    return std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.second < 1; });
  };
  const bool falls = falls_from(keeps.rows) || falls_from(keeps.inputs);
  std::vector<std::string> notes;
  if (outcome.hurried) notes.push_back(hurried_note(goal));
  constexpr double kFar = 0.1;
  if (goal.keep && mean_kept(outcome) > *goal.keep + kFar)
    notes.push_back(
        fmt::format("{:.0f} % of the MACs are left where {:.0f} % were asked for: groups of mode '{}' "
                    "are removed as a whole, and not every layer has any that can be removed",
                    100 * mean_kept(outcome), 100 * *goal.keep, source.mode));
  if (goal.keep && source.mode == "input" && mean_kept(outcome) < *goal.keep - kFar)
    notes.push_back(fmt::format(
        "{:.0f} % of the channels stay, and {:.0f} % of the MACs: most layers lose inputs and outputs",
        100 * *goal.keep, 100 * mean_kept(outcome)));
  if (falls && source.rows->group % 4 != 0)
    notes.push_back(
        fmt::format("INT8 kernels leave out 4 neighbouring channels at a time: what --group {} removes makes "
                    "{} no faster; --group 4 does{}",
                    source.rows->group, outcome.int8 ? "this model" : "INT8",
                    outcome.int8 ? "" : ", as --precision int8 has it"));
  return notes;
}

nlohmann::ordered_json steps_json(const PruneOutcome& outcome) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < outcome.steps.size(); ++i) {
    const PruneStep& step = outcome.steps[i];
    nlohmann::ordered_json entry = {{"ms", outcome.dense_ms / step.speedup.median}};
    entry.update(speed_json(step.speedup));
    entry["predicted_speedup"] = predicted_json(step.predicted);
    entry.update(drop_json(drop_of(step.answers, outcome.search_top1)));
    entry["expected_drop_points"] = 100 * step.drop.mean;
    entry["pareto"] = step.pareto;
    entry["chosen"] = outcome.is_chosen(i);
    steps.push_back(std::move(entry));
  }
  return steps;
}

nlohmann::ordered_json selections_json(const PruneOutcome& outcome) {
  nlohmann::ordered_json selections = nlohmann::ordered_json::array();
  for (const SketchedSelection& selection : outcome.sketched) {
    nlohmann::ordered_json entry = {{"predicted_speedup", selection.predicted}};
    entry.update(speed_json(selection.speedup));
    entry["error"] = selection.error;
    selections.push_back(std::move(entry));
  }
  return selections;
}

std::string steps_table(const PruneOutcome& outcome, int width) {
  using Align = Table::Align;
  Table steps({{"speed-up [95 %]", Align::right},
               {"ms", Align::right},
               {fmt::format("{} %", outcome.measure), Align::right, 2},
               {"drop [95 %]", Align::right},
               {"expected drop", Align::right, 1},
               {""}});
  for (std::size_t i = 0; i < outcome.steps.size(); ++i) {
    const PruneStep& step = outcome.steps[i];
    std::string mark = step.pareto ? "pareto" : "";
    if (outcome.is_chosen(i)) mark += mark.empty() ? "chosen" : ", chosen";
    steps.add({speed_text(step.speedup), fmt::format("{:.3f}", outcome.dense_ms / step.speedup.median),
               fmt::format("{:.2f}", 100 * (outcome.search_top1 - paired_drop(step.answers))),
               drop_text(drop_of(step.answers, outcome.search_top1)),
               expected_drop_text(100 * step.drop.mean, 100 * step.drop.standard_error), mark});
  }
  return steps.str(0, width);
}

}  // namespace

nlohmann::ordered_json prune_json(nlohmann::ordered_json json, const PruneSource& source,
                                  const PruneGoal& goal, const PruneOutcome& outcome) {
  if (outcome.missed.empty()) json["output"] = source.output;
  json["mode"] = source.mode;
  json["importance"] = source.importance;
  if (source.rows) {
    json["group"] = source.rows->group;
    json["panel"] = source.rows->panel;
    json["rows"] = source.rows->taps;
  }
  if (source.block) json["block"] = *source.block;
  json["refit"] = source.refits;
  json["judged_by"] = goal.judge_by == JudgeBy::labels ? "labels" : "model";
  if (goal.keep) {
    json["keep"] = *goal.keep;
    json["global"] = goal.global;
  }
  if (goal.speedup) json["target_speedup"] = *goal.speedup;
  if (goal.max_drop) json["max_drop"] = *goal.max_drop;
  json["calibration_images"] = outcome.calibrated;
  if (!goal.keep) json["time_was_short"] = outcome.hurried;
  if (!outcome.missed.empty()) {
    json["dense"] = {{"ms", outcome.dense_ms}};
    json["steps"] = steps_json(outcome);
    json["selections"] = selections_json(outcome);
    json["problem"] = outcome.missed;
    json["passed"] = outcome.passed;
    return json;
  }
  const PruneStep& chosen = outcome.steps[outcome.chosen];
  json["dense"] = {{"ms", outcome.dense_ms}, {"bytes", outcome.dense_bytes}};
  json["pruned"] = {{"ms", outcome.dense_ms / chosen.speedup.median}};
  json["pruned"].update(speed_json(chosen.speedup));
  json["pruned"]["macs_kept"] = mean_kept(outcome);
  json["pruned"]["bytes"] = outcome.bytes;
  json["unseen"] = drop_json(drop_of(outcome.unseen, outcome.unseen_top1));
  if (outcome.int8) {
    json["dense_fp32"] = {{"ms", outcome.int8->fp32_ms}};
    json["dense_fp32"].update(speed_json(outcome.int8->over_fp32));
    json["dense_unseen"] = drop_json(drop_of(outcome.int8->dense_unseen, outcome.unseen_top1));
    json["int8_nodes"] = outcome.int8->nodes;
    json["kept_nodes"] = outcome.int8->kept;
  }
  json["notes"] = notes_on(source, goal, outcome);
  json["zero_before"] = {{"rows", outcome.zero_rows}, {"others", outcome.other_zeros}};
  json["steps"] = steps_json(outcome);
  if (!goal.keep) json["selections"] = selections_json(outcome);
  json["layers"] = nlohmann::ordered_json::array();
  for (const PruneLayer& layer : outcome.layers) {
    nlohmann::ordered_json entry = {{"name", layer.name},
                                    {"kept", layer.kept},
                                    {"dense_macs", layer.macs},
                                    {"dense_ms", layer.dense_ms},
                                    {"pruned_ms", layer.pruned_ms},
                                    {"dense_kernel", layer.dense_kernel},
                                    {"pruned_kernel", layer.pruned_kernel}};
    entry["error"] = layer.error ? nlohmann::ordered_json(*layer.error) : nlohmann::ordered_json();
    entry["rows"] = layer.rows ? nlohmann::ordered_json(*layer.rows == MaskMode::input ? "channel" : "tap")
                               : nlohmann::ordered_json();
    json["layers"].push_back(std::move(entry));
  }
  if (outcome.judged) json.update(verdict_json(*outcome.judged));
  json["passed"] = outcome.passed;
  return json;
}

void print_pruned(const PruneSource& source, const PruneGoal& goal, const PruneOutcome& outcome) {
  using Align = Table::Align;
  constexpr int kLabel = 13;  // columns before the text
  const int width = table_width(source.wide);
  if (!outcome.missed.empty()) {
    if (!outcome.steps.empty()) fmt::print("{}", steps_table(outcome, width));
    if (outcome.hurried)
      fmt::print("{}", wrapped(fmt::format("note         {}\n", hurried_note(goal)), kLabel, width));
    return;
  }
  Table layers({{"layer", Align::left, 0, true},
                {"kept %", Align::right},
                {"MACs", Align::right, 3},
                {"left", Align::right, 2},
                {"ms", Align::right},
                {"pruned", Align::right},
                {"kernel", Align::left, 1},
                {"error %", Align::right}});
  for (const PruneLayer& layer : outcome.layers) {
    const double left = layer.kept * static_cast<double>(layer.macs);
    layers.add({layer.name, fmt::format("{:.0f}", 100 * layer.kept),
                with_prefix(static_cast<double>(layer.macs)), with_prefix(left),
                fmt::format("{:.4f}", layer.dense_ms), fmt::format("{:.4f}", layer.pruned_ms),
                layer.pruned_kernel, layer.error ? fmt::format("{:.2f}", 100 * *layer.error) : ""});
  }
  fmt::print("{}\n", layers.str(0, width));
  if (outcome.steps.size() > 1) fmt::print("{}\n", steps_table(outcome, width));
  const PruneStep& chosen = outcome.steps[outcome.chosen];
  std::string text = fmt::format(
      "time         {:.3f} ms{}, dense {:.3f}: {} times as fast (95 % interval); {:.0f} % of the MACs\n",
      outcome.dense_ms / chosen.speedup.median, outcome.int8 ? " in INT8" : "", outcome.dense_ms,
      speed_text(chosen.speedup), 100 * mean_kept(outcome));
  if (outcome.int8)
    text += fmt::format("in fp32      {:.3f} ms dense: {} times as fast as that\n", outcome.int8->fp32_ms,
                        speed_text(outcome.int8->over_fp32));
  if (outcome.zero_rows >= kSayZeros)
    text += fmt::format("before       {:.1f} % of the weights were zero in whole rows, and stay so\n",
                        100 * outcome.zero_rows);
  if (outcome.other_zeros >= kSayZeros)
    text += fmt::format(
        "before       {:.1f} % of the weights were zero, but not in rows: they are fitted like others\n",
        100 * outcome.other_zeros);
  text += fmt::format("unseen       {}: {} {:.2f} %, dense {:.2f} %: drop {} points\n",
                      counted(outcome.unseen.images, "image"), outcome.measure,
                      100 * (outcome.unseen_top1 - paired_drop(outcome.unseen)), 100 * outcome.unseen_top1,
                      drop_text(drop_of(outcome.unseen, outcome.unseen_top1)));
  if (outcome.int8)
    text += fmt::format("             of that INT8 without pruning {} points\n",
                        drop_text(drop_of(outcome.int8->dense_unseen, outcome.unseen_top1)));
  if (goal.speedup)
    text += fmt::format("goal         {:g} times as fast: {}\n", *goal.speedup,
                        reached_text(*goal.speedup, chosen.speedup));
  if (goal.max_drop) text += promise_line(*outcome.judged, kLabel);
  for (const std::string& note : notes_on(source, goal, outcome))
    text += fmt::format("note         {}\n", note);
  text += fmt::format("written      {}, {} ({} dense), chosen and fitted on {}\n", printable(source.output),
                      mebibytes(outcome.bytes), mebibytes(outcome.dense_bytes),
                      counted(outcome.calibrated, "image"));
  fmt::print("{}", wrapped(text, kLabel, width));
}

std::string prune_svg(const std::string& model, const PruneGoal& goal, const PruneOutcome& outcome) {
  std::vector<tools::ParetoPoint> points;
  points.push_back({outcome.dense_ms, 100 * outcome.search_top1, "dense", true, false});
  for (std::size_t i = 0; i < outcome.steps.size(); ++i) {
    const PruneStep& step = outcome.steps[i];
    points.push_back({outcome.dense_ms / step.speedup.median, 100 * (outcome.search_top1 - step.drop.mean),
                      fmt::format("{:.2f} times as fast", step.speedup.median), step.pareto,
                      outcome.is_chosen(i)});
  }
  std::optional<double> least;
  if (goal.max_drop) least = 100 * outcome.search_top1 - *goal.max_drop;
  return tools::pareto_svg(fmt::format("{}: accuracy and time, pruned", model), points, least,
                           outcome.measure + " by the expected drop, %");
}

}  // namespace pipit::internal::apps
