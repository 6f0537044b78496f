// Times of layers that ran in turns, with their spread, as rows of sweeps hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipit/sweep.h"

namespace pipit::internal::detail {

/// Of the times of all turns.
tools::SweptTimes swept_times(const std::vector<double>& turns_ms);
/// Over turns of base / run, at 95 %.
tools::Speedup speedup_over_turns(const std::vector<double>& base_ms, const std::vector<double>& run_ms);

/// Adds "ms", "ms_quartiles", "turns", "samples_ms" to a row.
void add_times(nlohmann::ordered_json& row, const tools::SweptTimes& times);
/// What that wrote. Throws Error for anything else.
tools::SweptTimes times_of(const nlohmann::ordered_json& row);

/// Adds "speedup" and "speedup_interval95", after `prefix`.
void add_speedup(nlohmann::ordered_json& row, const tools::Speedup& speedup, const std::string& prefix = {});
/// What that wrote. Throws Error for anything else.
tools::Speedup speedup_of(const nlohmann::ordered_json& row, const std::string& prefix = {});

/// The member "precision". Throws Error where it is none.
Precision precision_of(const nlohmann::ordered_json& row);

}  // namespace pipit::internal::detail
