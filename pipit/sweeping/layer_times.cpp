#include "pipit/sweeping/layer_times.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/statistics.h"
#include "pipit/measuring/json_documents.h"

namespace pipit::internal::detail {

namespace {

// The medians of up to 60 parts, in their order.
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

}  // namespace

tools::SweptTimes swept_times(const std::vector<double>& turns_ms) {
  return {quantile(turns_ms, 0.5), quantile(turns_ms, 0.25), quantile(turns_ms, 0.75),
          static_cast<int>(turns_ms.size()), samples_of(turns_ms)};
}

tools::Speedup speedup_over_turns(const std::vector<double>& base_ms, const std::vector<double>& run_ms) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < run_ms.size(); ++i) ratios.push_back(base_ms[i] / run_ms[i]);
  const MedianInterval interval = median_interval(std::move(ratios), 0.95);
  return {interval.median, interval.low, interval.high};
}

void add_times(nlohmann::ordered_json& row, const tools::SweptTimes& times) {
  row["ms"] = times.ms;
  row["ms_quartiles"] = {times.low_ms, times.high_ms};
  row["turns"] = times.turns;
  row["samples_ms"] = times.samples_ms;
}

tools::SweptTimes times_of(const nlohmann::ordered_json& row) {
  const std::pair<double, double> quartiles = interval_of(row, "ms_quartiles");
  const double ms = positive_of(row, "ms");
  check_within("ms", ms, quartiles, "ms_quartiles");
  return {ms, quartiles.first, quartiles.second, static_cast<int>(count_of(row, "turns")),
          samples_ms_of(row)};
}

void add_speedup(nlohmann::ordered_json& row, const tools::Speedup& speedup, const std::string& prefix) {
  row[prefix + "speedup"] = speedup.median;
  row[prefix + "speedup_interval95"] = {speedup.low, speedup.high};
}

tools::Speedup speedup_of(const nlohmann::ordered_json& row, const std::string& prefix) {
  const std::string key = prefix + "speedup";
  const std::string interval_key = key + "_interval95";
  const std::pair<double, double> interval = interval_of(row, interval_key.c_str());
  const double speedup = positive_of(row, key.c_str());
  check_within(key.c_str(), speedup, interval, interval_key);
  return {speedup, interval.first, interval.second};
}

Precision precision_of(const nlohmann::ordered_json& row) {
  const std::string name = text_of(row, "precision");
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16, Precision::int8}) {
    if (precision_name(precision) == name) return precision;
  }
  fail("\"precision\" is {}; expected fp32, fp16, bf16 or int8", shown(row.at("precision")));
}

}  // namespace pipit::internal::detail
