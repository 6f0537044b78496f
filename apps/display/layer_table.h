// The per-layer timing table of `profile` and `classify --profile`.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/platform/machine_peak.h"
#include "engine/runtime/profiler.h"
#include "pipit/detail/step_info.h"

namespace pipit::apps {

using detail::step_info;
using detail::StepInfo;

/// "variant" where the kernel has several, "chosen" (order, preference, measurement or cache), and "timed" where
/// kernels were: what each took, in ms.
void add_choice(nlohmann::ordered_json& layer, const Step& step);

/// "4 of 32 samples at a time: ...", or why all go together.
std::string describe(const MicroBatches& batches);
/// "micro_batch": "size", "runs" (of the steps in one run of the session) and "why".
void add_micro_batches(nlohmann::ordered_json& json, const MicroBatches& batches);

/// With a known `peak`, also how far every layer is from its floor: the time that its arithmetic or its bytes take at
/// the peak, whichever is longer.
std::string layer_table(const ExecutionPlan& plan, const Profile& profile, const MachinePeak& peak = {});
/// For users, where reference kernels, which are plain loops, take more than a hundredth of the layers' time: how much,
/// and which; else empty.
std::string reference_note(const ExecutionPlan& plan, const Profile& profile);
/// "reference_share" is what they take of the layers' time.
nlohmann::ordered_json layer_json(const ExecutionPlan& plan, const Profile& profile,
                                  const MachinePeak& peak = {});

}  // namespace pipit::apps
