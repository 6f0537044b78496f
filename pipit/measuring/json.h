// What the JSON of several results has in common (docs/json.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/plan/execution_plan.h"
#include "models/classification.h"

namespace pipit::internal::detail {

/// What decodes the images, for the JSON of commands that read some.
nlohmann::ordered_json decoders_json();
/// "scores", the name of their kind, and of independent ones "threshold".
void add_scores_to(nlohmann::ordered_json& json, const ClassOutput& output);
/// Common head of every JSON result: model, device, precision, threads, and pipit's version.
nlohmann::ordered_json json_header(const std::string& command, const std::string& model,
                                   const ExecutionPlan& plan);
/// The document as --json prints it, with a newline at its end. Always JSON: bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace pipit::internal::detail
