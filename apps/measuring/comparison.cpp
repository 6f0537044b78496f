#include "apps/measuring/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/display/table.h"
#include "engine/base/printable.h"

namespace pipit::internal::apps {

namespace {

constexpr double kUsualShare = 0.03;  // what is worth finding, where the data shows less

bool all_positive(const TimedProcesses& processes) {
  for (const std::vector<double>& process : processes) {
    if (process.empty() || *std::ranges::min_element(process) <= 0) return false;
  }
  return true;
}

// The times of the layers that one row stands for, process by process.
TimedProcesses processes_of(const TimedRuns& runs, const std::vector<std::size_t>& layers) {
  TimedProcesses sums;
  if (layers.empty()) return sums;
  for (std::size_t p = 0; p < runs.layers[layers[0]].processes.size(); ++p) {
    std::vector<LayerSeries> side;
    std::vector<std::size_t> all;
    for (const std::size_t l : layers) {
      all.push_back(side.size());
      side.push_back({{}, runs.layers[l].processes[p]});
    }
    sums.push_back(summed_ms(side, all));
  }
  return sums;
}

std::vector<ComparedLayer> compare_layers(const TimedRuns& first, const TimedRuns& second) {
  std::vector<ComparedLayer> compared;
  if (first.layers.empty() || second.layers.empty()) return compared;
  std::vector<std::vector<LayerSeries>> sides(2);
  for (const TimedRuns::Layer& layer : first.layers) sides[0].push_back({layer.nodes, {}});
  for (const TimedRuns::Layer& layer : second.layers) sides[1].push_back({layer.nodes, {}});
  std::vector<TimedPair> pairs;
  std::vector<std::size_t> of_pairs;
  for (const auto& row : match_layers(sides)) {
    const TimedRuns::Layer& named = row[0].empty() ? second.layers[row[1][0]] : first.layers[row[0][0]];
    ComparedLayer& layer = compared.emplace_back();
    layer.name = named.name;
    layer.type = named.type;
    TimedPair pair{processes_of(first, row[0]), processes_of(second, row[1])};
    layer.first_ms = typical_ms(pair.first);
    layer.second_ms = typical_ms(pair.second);
    // What takes less than the clock can tell is nothing to compare.
    if (layer.first_ms > 0 && layer.second_ms > 0 && all_positive(pair.first) && all_positive(pair.second)) {
      pairs.push_back(std::move(pair));
      of_pairs.push_back(compared.size() - 1);
    }
  }
  const std::vector<TimeRatio> ratios = compare_together(pairs);
  for (std::size_t i = 0; i < ratios.size(); ++i) compared[of_pairs[i]].ratio = ratios[i];
  return compared;
}

std::string ratio_text(const TimeRatio& ratio) {
  const std::string interval = interval_text(ratio);
  return fmt::format("{:.3f}{}{}", ratio.ratio, interval.empty() ? "" : " ", interval);
}

const char* repeats_name(TimedRepeats repeats) {
  return repeats == TimedRepeats::processes ? "processes" : "runs";
}

nlohmann::ordered_json ratio_json(const TimeRatio& ratio) {
  nlohmann::ordered_json json;
  json["ratio"] = ratio.ratio;
  const bool known = std::isfinite(ratio.high);
  json["interval95"] = known ? nlohmann::ordered_json{ratio.low, ratio.high} : nlohmann::ordered_json();
  json["verdict"] = verdict_name(ratio);
  json["margin"] = ratio.margin;
  json["repeats"] = ratio.repeats;
  json["repeats_are"] = repeats_name(ratio.repeats_are);
  json["shown_from"] = known ? nlohmann::ordered_json(ratio.shown_from()) : nlohmann::ordered_json();
  const double needed = ratio.repeats_for(kUsualShare);
  json["repeats_for_3_percent"] = needed > 0 ? nlohmann::ordered_json(needed) : nlohmann::ordered_json();
  return json;
}

}  // namespace

std::string TimedRuns::text() const {
  return fmt::format("{}, {}, batch {}, {}{}", printable(model), printable(precision), batch,
                     counted(threads, "thread"), streams > 1 ? fmt::format(", {} streams", streams) : "");
}

bool TimeComparison::fails_above(double percent) const {
  if (ratio.verdict == TimeVerdict::unknown) return true;  // a gate opens for what is known
  return ratio.verdict == TimeVerdict::slower && ratio.ratio > 1 + percent / 100;
}

TimeComparison compare_runs(const TimedRuns& first, const TimedRuns& second) {
  TimeComparison comparison;
  comparison.first = first.text();
  comparison.second = second.text();
  comparison.first_ms = typical_ms(first.processes);
  comparison.second_ms = typical_ms(second.processes);
  comparison.ratio = compare_times(first.processes, second.processes);
  comparison.layers = compare_layers(first, second);
  return comparison;
}

std::string verdict_text(const TimeRatio& ratio) {
  if (ratio.verdict == TimeVerdict::unknown)
    return fmt::format("{}, {} to tell", ratio_text(ratio), verdict_name(ratio));
  if (ratio.verdict != TimeVerdict::no_difference)
    return fmt::format("{}, {}", ratio_text(ratio), verdict_name(ratio));
  std::string text = fmt::format("{}, no difference that this data can show ({:.1f} % or more it would",
                                 ratio_text(ratio), 100 * ratio.shown_from());
  if (ratio.shown_from() > kUsualShare) {
    text += fmt::format("; {:.0f} % after about {:.0f} {} of each", 100 * kUsualShare,
                        ratio.repeats_for(kUsualShare), repeats_name(ratio.repeats_are));
  }
  return text + ")";
}

std::string compared_text(const TimeComparison& comparison, int width) {
  return wrapped(comparison.first == comparison.second
                     ? comparison.first + "\n"
                     : fmt::format("{}  ->  {}\n", comparison.first, comparison.second),
                 2, width);
}

std::string whole_text(const TimeComparison& comparison, int width) {
  const char* what = comparison.of_sweeps    ? "geometric mean"
                     : comparison.of_streams ? "time over runs"
                                             : "whole run";
  return wrapped(fmt::format("{}  {:.4f} -> {:.4f} ms: {}\n", what, comparison.first_ms, comparison.second_ms,
                             verdict_text(comparison.ratio)),
                 2, width);
}

std::string_view verdict_name(const TimeRatio& ratio) {
  switch (ratio.verdict) {
    case TimeVerdict::slower:
      return "slower";
    case TimeVerdict::faster:
      return "faster";
    case TimeVerdict::unknown:
      return ratio.repeats_are == TimedRepeats::processes ? "too few processes" : "too few runs";
    case TimeVerdict::no_difference:
      break;
  }
  return "no difference";
}

std::string interval_text(const TimeRatio& ratio) {
  if (!std::isfinite(ratio.high)) return {};
  // With few runs the interval may reach beyond any useful number.
  return ratio.high < 100 ? fmt::format("[{:.3f}, {:.3f}]", ratio.low, ratio.high)
                          : fmt::format("[{:.3f}, {:.0e}]", ratio.low, ratio.high);
}

std::string comparison_text(const TimeComparison& comparison, int width) {
  using enum Table::Align;
  std::string text = compared_text(comparison, width);
  if (!comparison.layers.empty()) {
    Table table({{"layer", left, 0, true},
                 {"type", left, 3},
                 {"ms", right},
                 {"ms", right},
                 {"x", right},
                 {"95 %", left, 2},
                 {""}});
    for (const ComparedLayer& layer : comparison.layers) {
      const auto ms = [](double time) { return time > 0 ? fmt::format("{:.4f}", time) : ""; };
      std::vector<std::string> cells = {layer.name, layer.type, ms(layer.first_ms), ms(layer.second_ms)};
      if (layer.ratio) {
        const TimeRatio& ratio = *layer.ratio;
        cells.push_back(fmt::format("{:.3f}", ratio.ratio));
        cells.push_back(interval_text(ratio));
        cells.emplace_back(ratio.is_shown() ? verdict_name(ratio) : "");
      }
      table.add(std::move(cells));
    }
    text += table.str(0, width);
  }
  return text + whole_text(comparison, width);
}

nlohmann::ordered_json comparison_json(const TimeComparison& comparison) {
  nlohmann::ordered_json json = {{"first", comparison.first},
                                 {"second", comparison.second},
                                 {"what", comparison.of_sweeps    ? "geometric mean"
                                          : comparison.of_streams ? "time over runs"
                                                                  : "run"},
                                 {"first_ms", comparison.first_ms},
                                 {"second_ms", comparison.second_ms}};
  json.update(ratio_json(comparison.ratio));
  if (comparison.layers.empty()) return json;
  json["layers"] = nlohmann::ordered_json::array();
  for (const ComparedLayer& layer : comparison.layers) {
    nlohmann::ordered_json entry = {{"name", layer.name},
                                    {"type", layer.type},
                                    {"first_ms", layer.first_ms},
                                    {"second_ms", layer.second_ms}};
    if (layer.ratio) entry.update(ratio_json(*layer.ratio));
    json["layers"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace pipit::internal::apps
