// What pipit evaluate says of answers.
#pragma once

#include <string>

#include "pipit/evaluate.h"

namespace pipit::internal::apps {

/// What `result` says of the answers, as lines, their first word `width` wide.
std::string accuracy_text(const tools::Evaluation& result, int width);

}  // namespace pipit::internal::apps
