// The memory of a plan and of the process that runs it, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/plan/execution_plan.h"
#include "engine/platform/device.h"

namespace pipit::internal::apps {

/// What the process held when the runs were done, in bytes.
struct ProcessMemory {
  std::size_t resident = 0;
  std::size_t peak = 0;  ///< reading the model and planning included
};

/// "memory" of `profile`.
nlohmann::ordered_json memory_json(const ExecutionPlan& plan, const ProcessMemory& process);
/// The table of `profile --memory`, its explanations broken between words at `width` (0: whole). `device` counts on a
/// GPU only.
std::string memory_table(const ExecutionPlan& plan, const ProcessMemory& process, const DeviceMemory& device,
                         int width);

}  // namespace pipit::internal::apps
