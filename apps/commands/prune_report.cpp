#include "apps/commands/prune_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/drop_text.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

constexpr double kSayZeros = 5e-4;  // of the weights
constexpr int kLabel = 13;          // columns before the text

std::string speed_text(const tools::Speedup& speedup) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", speedup.median, speedup.low, speedup.high);
}

std::string size_text(std::int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 0x1p20);
}

// The result of --target-speedup in words. `estimated`: the speed-up that the search found for the same model.
std::string goal_text(double wanted, const tools::PrunedModel& pruned, double estimated) {
  const tools::Speedup& speedup = pruned.speedup;
  constexpr double kWide = 0.1;  // of the median
  if (*pruned.reached) {
    if (speedup.high - speedup.low > kWide * speedup.median)
      return "reached, but the 95 % interval is wide: was the machine busy?";
    return speedup.low >= wanted ? "reached"
                                 : "reached by the median; the 95 % interval begins a little below";
  }
  return fmt::format("missed: {:.3f} times, {:.3f} by the search's estimate{}", speedup.median, estimated,
                     speedup.high < wanted ? "" : "; the interval holds the goal: was the machine busy?");
}

// Of the pruned model.
double pruned_percent(const tools::Drop& drop) {
  return 100 * (drop.base - static_cast<double>(drop.only_base_right - drop.only_model_right) /
                                static_cast<double>(drop.images));
}

std::string steps_table(const tools::PrunedModel& pruned, int width) {
  using Align = Table::Align;
  Table steps({{"speed-up [95 %]", Align::right},
               {"ms", Align::right},
               {fmt::format("{} %", pruned.measure), Align::right, 2},
               {"drop [95 %]", Align::right},
               {"expected drop", Align::right, 1},
               {""}});
  for (const tools::PruneStep& step : pruned.steps) {
    std::string mark = step.pareto ? "pareto" : "";
    if (step.chosen) mark += mark.empty() ? "chosen" : ", chosen";
    steps.add({speed_text(step.speedup), fmt::format("{:.3f}", step.ms),
               fmt::format("{:.2f}", pruned_percent(step.drop)), drop_text(step.drop),
               expected_drop_text(step.expected_drop, step.expected_drop_error), mark});
  }
  return steps.str(0, width);
}

std::string layers_table(const tools::PrunedModel& pruned, int width) {
  using Align = Table::Align;
  Table layers({{"layer", Align::left, 0, true},
                {"kept %", Align::right},
                {"MACs", Align::right, 3},
                {"left", Align::right, 2},
                {"ms", Align::right},
                {"pruned", Align::right},
                {"kernel", Align::left, 1},
                {"error %", Align::right}});
  for (const tools::PrunedLayer& layer : pruned.layers) {
    const auto macs = static_cast<double>(layer.macs);
    layers.add({layer.name, fmt::format("{:.0f}", 100 * layer.kept), with_prefix(macs),
                with_prefix(layer.kept * macs), fmt::format("{:.4f}", layer.dense_ms),
                fmt::format("{:.4f}", layer.pruned_ms), layer.pruned_kernel,
                layer.error ? fmt::format("{:.2f}", 100 * *layer.error) : ""});
  }
  return layers.str(0, width);
}

}  // namespace

void print_pruned(const PruneOptions& options, const tools::PrunedModel& pruned) {
  const int width = table_width(options.wide);
  const tools::PruneGoal& goal = options.how.goal;
  std::string remarks;
  for (const std::string& remark : pruned.remarks) remarks += fmt::format("note         {}\n", remark);
  if (!pruned.problem.empty()) {
    if (!pruned.steps.empty()) fmt::print("{}", steps_table(pruned, width));
    fmt::print("{}", wrapped(remarks, kLabel, width));
    return;
  }
  fmt::print("{}\n", layers_table(pruned, width));
  if (pruned.steps.size() > 1) fmt::print("{}\n", steps_table(pruned, width));
  const tools::PruneStep& chosen = *std::ranges::find_if(pruned.steps, &tools::PruneStep::chosen);
  std::string text = fmt::format(
      "time         {:.3f} ms{}, dense {:.3f}: {} times as fast (95 % interval){}; {:.0f} % of the MACs\n",
      pruned.dense_ms / pruned.speedup.median, pruned.int8 ? " in INT8" : "", pruned.dense_ms,
      speed_text(pruned.speedup), goal.keep ? "" : ", measured after the search", 100 * pruned.macs_kept);
  if (pruned.int8)
    text += fmt::format("in fp32      {:.3f} ms dense: {} times as fast as that\n", pruned.int8->fp32_ms,
                        speed_text(pruned.int8->over_fp32));
  if (pruned.zero_rows >= kSayZeros)
    text += fmt::format("before       {:.1f} % of the weights were zero in whole rows, and stay so\n",
                        100 * pruned.zero_rows);
  if (pruned.other_zeros >= kSayZeros)
    text += fmt::format(
        "before       {:.1f} % of the weights were zero, but not in rows: they are fitted like others\n",
        100 * pruned.other_zeros);
  text += fmt::format("unseen       {}: {} {:.2f} %, dense {:.2f} %: drop {} points\n",
                      counted(pruned.unseen.images, "image"), pruned.measure, pruned_percent(pruned.unseen),
                      100 * pruned.unseen.base, drop_text(pruned.unseen));
  if (pruned.int8)
    text += fmt::format("             of that INT8 without pruning {} points\n",
                        drop_text(pruned.int8->dense_unseen));
  if (goal.speedup)
    text += fmt::format("goal         {:g} times as fast: {}\n", *goal.speedup,
                        goal_text(*goal.speedup, pruned, chosen.speedup.median));
  if (pruned.judged) text += promise_line(*pruned.judged, kLabel);
  text += remarks;
  text += fmt::format("written      {}, {} ({} dense), chosen and fitted on {}\n", printable(options.output),
                      size_text(pruned.bytes), size_text(pruned.dense_bytes),
                      counted(pruned.calibration_images, "image"));
  fmt::print("{}", wrapped(text, kLabel, width));
}

std::string prune_svg(const PruneOptions& options, const tools::PrunedModel& pruned) {
  const double dense = 100 * pruned.dense_right;
  std::vector<tools::ParetoPoint> points;
  points.push_back({pruned.dense_ms, dense, "dense", true, false});
  for (const tools::PruneStep& step : pruned.steps) {
    points.push_back({step.ms, dense - step.expected_drop,
                      fmt::format("{:.2f} times as fast", step.speedup.median), step.pareto, step.chosen});
  }
  std::optional<double> least;
  if (options.how.goal.max_drop) least = dense - *options.how.goal.max_drop;
  return tools::pareto_svg(fmt::format("{}: accuracy and time, pruned", options.model.model), points, least,
                           pruned.measure + " by the expected drop, %");
}

}  // namespace pipit::internal::apps
