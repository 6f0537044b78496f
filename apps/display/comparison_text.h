// Compared times for people.
#pragma once

#include <string>

#include "pipit/compare.h"

namespace pipit::internal::apps {

/// What is compared, the layers of both (of a sweep the ten rows that became slower the most, the ten at the other end,
/// and how many have which verdict), and the whole with its verdict. Broken between words where it is wider than
/// `width` (0: never).
std::string comparison_text(const tools::TimeComparison& comparison, int width);

}  // namespace pipit::internal::apps
