#include "apps/measuring/layer_times.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/measuring/json_documents.h"

namespace pipit::internal::apps {

std::vector<double> samples_of(const std::vector<double>& times_ms) {
  constexpr std::size_t kMaxSamples = 60;
  const std::size_t count = std::min(times_ms.size(), kMaxSamples);
  std::vector<double> samples;
  for (std::size_t part = 0; part < count; ++part) {
    const auto at = [&](std::size_t i) {
      return times_ms.begin() + static_cast<std::ptrdiff_t>(i * times_ms.size() / count);
    };
    samples.push_back(quantile({at(part), at(part + 1)}, 0.5));
  }
  return samples;
}

RunTimes run_times(const std::vector<double>& turns_ms) {
  return {quantile(turns_ms, 0.5), quantile(turns_ms, 0.25), quantile(turns_ms, 0.75),
          static_cast<int>(turns_ms.size()), samples_of(turns_ms)};
}

void add_times(nlohmann::ordered_json& row, const RunTimes& times) {
  row["ms"] = times.ms;
  row["ms_quartiles"] = {times.low_ms, times.high_ms};
  row["turns"] = times.turns;
  row["samples_ms"] = times.samples_ms;
}

RunTimes times_of(const nlohmann::ordered_json& row) {
  const std::pair<double, double> quartiles = interval_of(row, "ms_quartiles");
  const double ms = positive_of(row, "ms");
  check_within("ms", ms, quartiles, "ms_quartiles");
  return {ms, quartiles.first, quartiles.second, static_cast<int>(count_of(row, "turns")),
          samples_ms_of(row)};
}

MedianInterval speedup_over_turns(const std::vector<double>& base_ms, const std::vector<double>& run_ms) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < run_ms.size(); ++i) ratios.push_back(base_ms[i] / run_ms[i]);
  return median_interval(std::move(ratios), 0.95);
}

void add_speedup(nlohmann::ordered_json& row, const MedianInterval& speedup, const std::string& prefix) {
  row[prefix + "speedup"] = speedup.median;
  row[prefix + "speedup_interval95"] = {speedup.low, speedup.high};
}

MedianInterval speedup_of(const nlohmann::ordered_json& row, const std::string& prefix) {
  const std::string key = prefix + "speedup";
  const std::string interval_key = key + "_interval95";
  const std::pair<double, double> interval = interval_of(row, interval_key.c_str());
  const double speedup = positive_of(row, key.c_str());
  check_within(key.c_str(), speedup, interval, interval_key);
  return {speedup, interval.first, interval.second};
}

void add_times(nlohmann::ordered_json& row, const LayerTimes& times, const std::string& base_key) {
  add_times(row, static_cast<const RunTimes&>(times));
  row[base_key] = times.base_ms;
  add_speedup(row, times.speedup);
}

LayerTimes times_of(const nlohmann::ordered_json& row, const std::string& base_key) {
  return {times_of(row), positive_of(row, base_key.c_str()), speedup_of(row)};
}

std::string times_csv_titles(const std::string& base_key) {
  return fmt::format("ms,ms_low,ms_high,{},turns,speedup,speedup_low,speedup_high,samples_ms", base_key);
}

std::string times_csv(const LayerTimes& times) {
  return fmt::format("{},{},{},{},{},{},{},{},{}", times.ms, times.low_ms, times.high_ms, times.base_ms,
                     times.turns, times.speedup.median, times.speedup.low, times.speedup.high,
                     fmt::join(times.samples_ms, " "));
}

}  // namespace pipit::internal::apps
