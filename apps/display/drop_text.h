// A drop of top-1 and what is said of one that was promised, as tune, prune and evaluate show them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "quant/drop_verdict.h"
#include "quant/mixed_search.h"

namespace pipit::internal::apps {

/// In points, with its 95 % interval: "0.25 [-0.10, 0.60]".
std::string drop_text(const PairedAnswers& answers);

/// In points, with its standard error: "0.30 ± 0.12".
std::string expected_drop_text(const DropEstimate& drop);

/// "images", "base_top1" (a share), "top1" of what is held against it, "drop_points", "drop_points_interval95", and how
/// many images "only_base_right" and "only_model_right" count.
nlohmann::ordered_json drop_json(const PairedAnswers& answers, double base_top1);

/// "verdict", "images_needed" (null where no number of images would prove it, or where it is proven), "passed".
nlohmann::ordered_json verdict_json(const JudgedDrop& drop);

/// "promise      at most 1 points: proven there", its first word `width` wide.
std::string promise_line(double max_drop_points, const JudgedDrop& drop, int width);

}  // namespace pipit::internal::apps
