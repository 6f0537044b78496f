// Reading --plan for a model.
#pragma once

#include <string>
#include <vector>

#include "engine/graph.h"
#include "models/image/preprocess.h"
#include "quant/precision_plan.h"

namespace pipit::apps {

/// Reads the plan at `path` for the model whose graph, as it was read, is `graph`. Throws Error when it was calibrated
/// for another one.
PrecisionPlan load_precision_plan(const std::string& path, const Graph& graph);

/// What `preprocess` does to images in another way than was done to those that `plan`, read from `path`, was calibrated
/// on. Unless `quiet`, a note on stderr says it: ranges may not fit, but that is for the user to judge. Throws Error
/// when the plan does not say how its images were prepared.
std::vector<std::string> compare_preprocess(const PrecisionPlan& plan, const std::string& path,
                                            const Preprocess& preprocess, bool quiet);

}  // namespace pipit::apps
