// What `profile`, `classify --profile` and `inspect` say about layers as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipit/measuring/layer_rows.h"

namespace pipit::internal::detail {

/// "variant" where the kernel has several, "chosen" (order, preference, measurement or cache), and "timed" where
/// kernels were: what each took, in ms.
void add_choice(nlohmann::ordered_json& layer, const Step& step);

/// "4 of 32 samples at a time: ...", or why all go together.
std::string describe(const MicroBatches& batches);

/// "micro_batch": "size", "runs" (of the steps in one run of the session) and "why".
void add_micro_batches(nlohmann::ordered_json& json, const MicroBatches& batches);

/// "reference_share" is what reference kernels take of the layers' time; samples_ms are the times of single runs.
nlohmann::ordered_json layer_json(const std::vector<LayerRow>& rows, const ExecutionPlan& plan,
                                  const Profile& profile, const Ceilings& ceilings = {});
/// "groups" of `profile --by type|kernel`.
nlohmann::ordered_json group_json(const std::vector<LayerRow>& rows, const Profile& profile,
                                  tools::GroupBy by);

}  // namespace pipit::internal::detail
