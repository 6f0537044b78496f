// A drop of accuracy and what is said of one that was promised, as tune, prune and evaluate show them.
#pragma once

#include <string>

#include "pipit/accuracy.h"

namespace pipit::internal::apps {

/// In points, with its 95 % interval: "0.25 [-0.10, 0.60]".
std::string drop_text(const tools::Drop& drop);

/// In points, with its standard error: "0.30 ± 0.12".
std::string expected_drop_text(double points, double standard_error);

/// "promise      at most 1 points: proven there", its first word `width` wide; "missed, broken there" if the measured
/// drop is larger.
std::string promise_line(const tools::JudgedDrop& drop, int width);

}  // namespace pipit::internal::apps
