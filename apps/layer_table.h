// The per-layer timing table of `profile` and `classify --profile`.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/profiler.h"

namespace pipit::apps {

/// What describes one step of a plan in tables and JSON.
struct StepInfo {
  int index = 0;
  std::string name, type, kernel, geometry;
  Shape input, output;
  std::int64_t macs = 0;
};
StepInfo step_info(const Plan& plan, const Step& step);

std::string layer_table(const Plan& plan, const Profile& profile);
nlohmann::ordered_json layer_json(const Plan& plan, const Profile& profile);

}  // namespace pipit::apps
