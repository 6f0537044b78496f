// Ceilings as JSON: in the documents of commands and in the file that keeps them (docs/json.md).
#pragma once

#include <nlohmann/json.hpp>

#include "engine/platform/ceilings.h"

namespace pipit::internal::detail {

nlohmann::ordered_json ceilings_json(const Ceilings& ceilings);

/// The ceilings that ceilings_json() wrote. Throws Error or an exception of the library for anything else, also for
/// rates that are not positive numbers.
Ceilings ceilings_from_json(const nlohmann::ordered_json& json);

}  // namespace pipit::internal::detail
