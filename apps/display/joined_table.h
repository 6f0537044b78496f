// Layers of several profiles of one model side by side.
#pragma once

#include <nlohmann/json.hpp>

#include "apps/display/layer_table.h"
#include "engine/runtime/match_layers.h"

namespace pipit::internal::apps {

/// One profile. Its time of a layer is divided by `samples` where speeds are compared.
struct ProfiledSide {
  std::string label;  ///< what sets it apart: "int8", "2 threads"
  std::vector<LayerRow> rows;
  Profile profile;
  std::int64_t samples = 1;
};

/// A row for each of match_layers(): its time on every side, and how many times as fast as the first side the others
/// are, for one sample. Sums and whole runs are the last rows.
std::string joined_table(const std::vector<ProfiledSide>& sides, const TableView& view);
/// The rows of all layers, in the order in which they run: "name", "nodes", and one entry for each side of
/// "median_ms" and "speedup", null where a side has nothing of the kind.
nlohmann::ordered_json joined_json(const std::vector<ProfiledSide>& sides);

}  // namespace pipit::internal::apps
