// What pipit evaluate says of answers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "apps/measuring/accuracy.h"

namespace pipit::internal::apps {

/// "top-1", "accuracy" (of yes or no), "exact" (of tags): the share of answers that are right.
std::string name_of_right(const Accuracy& accuracy);

/// The keys of docs/json.md: "top1" or "exact" with "..._correct" and "..._interval95", "top5", "classes" and so on.
nlohmann::ordered_json accuracy_json(const Accuracy& accuracy, const Labels& labels);

/// The same as lines, their first word `width` wide.
std::string accuracy_text(const Accuracy& accuracy, const Labels& labels, int width);

}  // namespace pipit::internal::apps
