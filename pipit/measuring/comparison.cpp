#include "pipit/measuring/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

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

std::vector<tools::ComparedLayer> compare_layers(const TimedRuns& first, const TimedRuns& second) {
  std::vector<tools::ComparedLayer> compared;
  if (first.layers.empty() || second.layers.empty()) return compared;
  std::vector<std::vector<LayerSeries>> sides(2);
  for (const TimedRuns::Layer& layer : first.layers) sides[0].push_back({layer.nodes, {}});
  for (const TimedRuns::Layer& layer : second.layers) sides[1].push_back({layer.nodes, {}});
  std::vector<TimedPair> pairs;
  std::vector<std::size_t> of_pairs;
  for (const auto& row : match_layers(sides)) {
    const TimedRuns::Layer& named = row[0].empty() ? second.layers[row[1][0]] : first.layers[row[0][0]];
    tools::ComparedLayer& layer = compared.emplace_back();
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
  for (std::size_t i = 0; i < ratios.size(); ++i) compared[of_pairs[i]].ratio = compared_times(ratios[i]);
  return compared;
}

// "[1.031, 1.071]", or nothing where there is too little to tell.
std::string interval_text(const TimeRatio& ratio) {
  if (!std::isfinite(ratio.high)) return {};
  // With few runs the interval may reach beyond any useful number.
  return ratio.high < 100 ? fmt::format(" [{:.3f}, {:.3f}]", ratio.low, ratio.high)
                          : fmt::format(" [{:.3f}, {:.0e}]", ratio.low, ratio.high);
}

const char* repeats_name(TimedRepeats repeats) {
  return repeats == TimedRepeats::processes ? "processes" : "runs";
}

tools::TimeChange change_of(const TimeRatio& ratio) {
  switch (ratio.verdict) {
    case TimeVerdict::slower:
      return tools::TimeChange::slower;
    case TimeVerdict::faster:
      return tools::TimeChange::faster;
    case TimeVerdict::unknown:
      return tools::TimeChange::unknown;
    case TimeVerdict::no_difference:
      break;
  }
  return tools::TimeChange::none;
}

std::string verdict_name(const TimeRatio& ratio) {
  switch (ratio.verdict) {
    case TimeVerdict::slower:
      return "slower";
    case TimeVerdict::faster:
      return "faster";
    case TimeVerdict::unknown:
      return fmt::format("too few {}", repeats_name(ratio.repeats_are));
    case TimeVerdict::no_difference:
      break;
  }
  return "no difference";
}

std::string verdict_text(const TimeRatio& ratio) {
  const std::string number = fmt::format("{:.3f}{}", ratio.ratio, interval_text(ratio));
  if (ratio.verdict == TimeVerdict::unknown)
    return fmt::format("{}, {} to tell", number, verdict_name(ratio));
  if (ratio.verdict != TimeVerdict::no_difference) return fmt::format("{}, {}", number, verdict_name(ratio));
  std::string text = fmt::format("{}, no difference that this data can show ({:.1f} % or more it would",
                                 number, 100 * ratio.shown_from());
  if (ratio.shown_from() > kUsualShare) {
    text += fmt::format("; {:.0f} % after about {:.0f} {} of each", 100 * kUsualShare,
                        ratio.repeats_for(kUsualShare), repeats_name(ratio.repeats_are));
  }
  return text + ")";
}

Json ratio_json(const tools::ComparedTimes& times) {
  const auto known = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  return {{"ratio", times.ratio},
          {"interval95", times.shown_from ? Json{times.low, times.high} : Json()},
          {"verdict", times.verdict},
          {"margin", times.margin},
          {"repeats", times.repeats},
          {"repeats_are", times.repeats_are},
          {"shown_from", known(times.shown_from)},
          {"repeats_for_3_percent", known(times.repeats_for_3_percent)}};
}

}  // namespace

std::string TimedRuns::text() const {
  return fmt::format("{}, {}, batch {}, {}{}", printable(model), printable(precision), batch,
                     counted(threads, "thread"), streams > 1 ? fmt::format(", {} streams", streams) : "");
}

tools::ComparedTimes compared_times(const TimeRatio& ratio) {
  tools::ComparedTimes times;
  times.ratio = ratio.ratio;
  times.low = ratio.low;
  times.high = ratio.high;
  times.change = change_of(ratio);
  times.verdict = verdict_name(ratio);
  times.text = verdict_text(ratio);
  times.margin = ratio.margin;
  times.repeats = ratio.repeats;
  times.repeats_are = repeats_name(ratio.repeats_are);
  if (std::isfinite(ratio.high)) times.shown_from = ratio.shown_from();
  if (const double needed = ratio.repeats_for(kUsualShare); needed > 0) times.repeats_for_3_percent = needed;
  return times;
}

bool fails_above(const tools::ComparedTimes& times, double percent) {
  if (times.change == tools::TimeChange::unknown) return true;  // a gate opens for what is known
  return times.change == tools::TimeChange::slower && times.ratio > 1 + percent / 100;
}

tools::TimeComparison compare_runs(const TimedRuns& first, const TimedRuns& second) {
  tools::TimeComparison comparison;
  comparison.first = first.text();
  comparison.second = second.text();
  comparison.what = "run";
  comparison.first_ms = typical_ms(first.processes);
  comparison.second_ms = typical_ms(second.processes);
  comparison.ratio = compared_times(compare_times(first.processes, second.processes));
  comparison.layers = compare_layers(first, second);
  return comparison;
}

Json comparison_json(const tools::TimeComparison& comparison) {
  Json json = {{"first", comparison.first},
               {"second", comparison.second},
               {"what", comparison.what},
               {"first_ms", comparison.first_ms},
               {"second_ms", comparison.second_ms}};
  json.update(ratio_json(comparison.ratio));
  if (comparison.layers.empty()) return json;
  json["layers"] = Json::array();
  for (const tools::ComparedLayer& layer : comparison.layers) {
    Json entry = {{"name", layer.name},
                  {"type", layer.type},
                  {"first_ms", layer.first_ms},
                  {"second_ms", layer.second_ms}};
    if (layer.ratio) entry.update(ratio_json(*layer.ratio));
    json["layers"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace pipit::internal::detail
