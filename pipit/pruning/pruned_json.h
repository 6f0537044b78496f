// What pruning found as JSON (docs/json.md).
#pragma once

#include <nlohmann/json.hpp>

#include "pipit/prune.h"

namespace pipit::internal::detail {

/// "speedup" and "speedup_interval95".
nlohmann::ordered_json speed_json(const tools::Speedup& speedup);
nlohmann::ordered_json steps_json(const tools::PrunedModel& result);
nlohmann::ordered_json selections_json(const tools::PrunedModel& result);
nlohmann::ordered_json layers_json(const tools::PrunedModel& result);

}  // namespace pipit::internal::detail
