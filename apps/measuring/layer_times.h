// Times of two layers that ran in turns, with their spread, as rows of sweeps hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/statistics.h"

namespace pipit::internal::apps {

/// One run among those that took turns.
struct RunTimes {
  double ms = 0, low_ms = 0, high_ms = 0;  ///< median and quartiles
  int turns = 0;
  /// The medians of up to 60 parts of the turns, in their order, for pipit compare.
  std::vector<double> samples_ms;
};
RunTimes run_times(const std::vector<double>& turns_ms);

/// A run and its base.
struct LayerTimes : RunTimes {
  double base_ms = 0;      ///< median
  MedianInterval speedup;  ///< over turns of base / run, at 95 %
};

/// RunTimes::samples_ms, of the times of all turns.
std::vector<double> samples_of(const std::vector<double>& times_ms);

/// Adds "ms", "ms_quartiles", "turns", "samples_ms" to a row.
void add_times(nlohmann::ordered_json& row, const RunTimes& times);
/// What that wrote. Throws Error for anything else.
RunTimes times_of(const nlohmann::ordered_json& row);

/// Over turns of base / run, at 95 %.
MedianInterval speedup_over_turns(const std::vector<double>& base_ms, const std::vector<double>& run_ms);
/// Adds "speedup" and "speedup_interval95", after `prefix`.
void add_speedup(nlohmann::ordered_json& row, const MedianInterval& speedup, const std::string& prefix = {});
/// What that wrote. Throws Error for anything else.
MedianInterval speedup_of(const nlohmann::ordered_json& row, const std::string& prefix = {});

/// Adds "ms", "ms_quartiles", `base_key` (the median of the base), "turns", "speedup", "speedup_interval95",
/// "samples_ms" to a row.
void add_times(nlohmann::ordered_json& row, const LayerTimes& times, const std::string& base_key);
/// What add_times() wrote. Throws Error for anything else.
LayerTimes times_of(const nlohmann::ordered_json& row, const std::string& base_key);

/// Titles of times_csv(), in which samples are one cell, with blanks between them.
std::string times_csv_titles(const std::string& base_key);
std::string times_csv(const LayerTimes& times);
inline constexpr int kTimesCsvColumns = 9;

}  // namespace pipit::internal::apps
