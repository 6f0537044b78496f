// Layers of several profiles of one model side by side.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "pipit/measuring/profiled_run.h"

namespace pipit::internal::detail {

/// A row for each of match_layers(): its time in every run, and how many times as fast as in the first one, for one
/// sample.
std::vector<tools::JoinedLayer> joined_layers(const std::vector<ProfiledRun>& runs);
/// "sum of layers" and "end to end", likewise.
std::vector<tools::JoinedLayer> joined_totals(const std::vector<ProfiledRun>& runs);
/// The rows of all layers: "name", "nodes", and one entry for each run of "median_ms" and "speedup", null where a run
/// has nothing of the kind.
nlohmann::ordered_json joined_json(const std::vector<tools::JoinedLayer>& layers);

}  // namespace pipit::internal::detail
