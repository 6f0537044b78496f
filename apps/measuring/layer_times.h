// Times of two layers that ran in turns, with their spread, as rows of sweeps hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/statistics.h"

namespace pipit::apps {

/// Two runs in turns.
struct LayerTimes {
  double ms = 0, low_ms = 0, high_ms = 0;  ///< median and quartiles of `run`
  double base_ms = 0;                      ///< median of `base`
  MedianInterval speedup;                  ///< over turns of base / run, at 95 %
  int turns = 0;
  /// Of `run`: the medians of up to 60 parts of the turns, in their order, for pipit compare.
  std::vector<double> samples_ms;
};

/// Those medians, of the times of all turns.
std::vector<double> samples_of(const std::vector<double>& times_ms);

/// Adds "ms", "ms_quartiles", `base_key` (the median of the base), "turns", "speedup", "speedup_interval95",
/// "samples_ms" to a row.
void add_times(nlohmann::ordered_json& row, const LayerTimes& times, const std::string& base_key);
/// What add_times() wrote. Throws nlohmann's exception for a row without it, Error for a speed-up that is not positive.
LayerTimes times_of(const nlohmann::ordered_json& row, const std::string& base_key);

/// Titles of times_csv(), in which samples are one cell, with blanks between them.
std::string times_csv_titles(const std::string& base_key);
std::string times_csv(const LayerTimes& times);
inline constexpr int kTimesCsvColumns = 9;

}  // namespace pipit::apps
