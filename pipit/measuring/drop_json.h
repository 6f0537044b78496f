// A drop of accuracy as results and their JSON have it.
#pragma once

#include <nlohmann/json.hpp>

#include "pipit/accuracy.h"
#include "quant/drop_verdict.h"

namespace pipit::internal::detail {

/// Of answers of a base, the first, and a model. `base`: the share of images on which the base is right. Throws Error
/// without images.
tools::Drop drop_of(const PairedAnswers& answers, double base);
/// judge_drop() with a limit in points.
tools::JudgedDrop judged(const PairedAnswers& answers, double max_points);

/// "images", "base_top1" (a share), "top1" of what is held against it, "drop_points", "drop_points_interval95", and how
/// many images "only_base_right" and "only_model_right" count.
nlohmann::ordered_json drop_json(const tools::Drop& drop);

/// "verdict", "images_needed" (null where no number of images would prove it, or where it is proven), "passed".
nlohmann::ordered_json verdict_json(const tools::JudgedDrop& drop);

}  // namespace pipit::internal::detail
