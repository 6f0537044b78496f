// From --plan and --keep to the pass that makes a graph compute in INT8.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "layers/fuse/passes.h"
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

/// quantize_graph() with `plan` and the nodes of `keep` besides those that it keeps. Unless `quiet`, a note on stderr
/// says how many layers stay in floating point. On a GPU activations are signed, as its products are. When the pass
/// runs it adds the names of nodes that are kept in fp32 to `keep_f32`, if there is one.
ExtraPass int8_pass(PrecisionPlan plan, std::vector<PrecisionPlan::Kept> keep, bool quiet,
                    DeviceKind device = DeviceKind::cpu,
                    std::shared_ptr<std::set<std::string>> keep_f32 = nullptr);

}  // namespace pipit::apps
