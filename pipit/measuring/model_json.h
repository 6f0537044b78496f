// A model and its profile as JSON documents, with keys of the command's (docs/json.md).
#pragma once

#include <string>

#include "pipit/profile.h"

namespace pipit::internal::detail {

/// `pipit profile --json`, of which it has what a ModelProfile holds.
std::string profile_json(const CompiledModel& model, const tools::ModelProfile& profile);
/// `pipit inspect --json`, of which it has what a compiled model knows.
std::string inspect_json(const CompiledModel& model);

}  // namespace pipit::internal::detail
