// One run of a plan and the memory that it uses, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/plan/execution_plan.h"
#include "engine/runtime/profile.h"

namespace pipit::internal::detail {

/// "run" of `profile`: one run as it went, with its position among "samples_ms" and every kernel call.
nlohmann::ordered_json run_json(const RunTrace& trace);

/// "arena" of `profile`: its size, what each step has alive, and what lies where from which step to which.
nlohmann::ordered_json arena_json(const ExecutionPlan& plan);

}  // namespace pipit::internal::detail
