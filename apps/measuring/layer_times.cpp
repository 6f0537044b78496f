#include "apps/measuring/layer_times.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/error.h"

namespace pipit::apps {

std::vector<double> samples_of(const std::vector<double>& times_ms) {
  constexpr std::size_t kMostSamples = 60;
  const std::size_t count = std::min(times_ms.size(), kMostSamples);
  std::vector<double> samples;
  for (std::size_t part = 0; part < count; ++part) {
    const auto at = [&](std::size_t i) {
      return times_ms.begin() + static_cast<std::ptrdiff_t>(i * times_ms.size() / count);
    };
    samples.push_back(quantile({at(part), at(part + 1)}, 0.5));
  }
  return samples;
}

void add_times(nlohmann::ordered_json& row, const LayerTimes& times, const std::string& base_key) {
  row["ms"] = times.ms;
  row["ms_quartiles"] = {times.low_ms, times.high_ms};
  row[base_key] = times.base_ms;
  row["turns"] = times.turns;
  row["speedup"] = times.speedup.median;
  row["speedup_interval95"] = {times.speedup.low, times.speedup.high};
  row["samples_ms"] = times.samples_ms;
}

LayerTimes times_of(const nlohmann::ordered_json& row, const std::string& base_key) {
  LayerTimes times;
  times.ms = row.at("ms").get<double>();
  times.low_ms = row.at("ms_quartiles").at(0).get<double>();
  times.high_ms = row.at("ms_quartiles").at(1).get<double>();
  times.base_ms = row.at(base_key).get<double>();
  times.turns = row.at("turns").get<int>();
  times.speedup = {row.at("speedup").get<double>(), row.at("speedup_interval95").at(0).get<double>(),
                   row.at("speedup_interval95").at(1).get<double>()};
  times.samples_ms = row.at("samples_ms").get<std::vector<double>>();
  if (!(times.speedup.median > 0)) fail("a speed-up of {}", times.speedup.median);
  return times;
}

std::string times_csv_titles(const std::string& base_key) {
  return fmt::format("ms,ms_low,ms_high,{},turns,speedup,speedup_low,speedup_high,samples_ms", base_key);
}

std::string times_csv(const LayerTimes& times) {
  return fmt::format("{},{},{},{},{},{},{},{},{}", times.ms, times.low_ms, times.high_ms, times.base_ms,
                     times.turns, times.speedup.median, times.speedup.low, times.speedup.high,
                     fmt::join(times.samples_ms, " "));
}

}  // namespace pipit::apps
