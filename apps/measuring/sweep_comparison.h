// Two sweeps held against each other, configuration by configuration.
#pragma once

#include <string>

#include "apps/measuring/comparison.h"
#include "apps/measuring/sweep_file.h"

namespace pipit::internal::apps {

/// Rows of the same layer and `how`: compare_together(), and compare_times() of the geometric means of all that
/// both have, process by process. What only one side has, or ran, is a row without a ratio after the others. Throws
/// Error where nothing is in common.
TimeComparison compare_sweeps(const SweptRows& first, const SweptRows& second);

/// The ten rows that became slower the most, and the ten at the other end, how many have which verdict, and the
/// geometric mean.
std::string sweep_comparison_text(const TimeComparison& comparison, int width);

}  // namespace pipit::internal::apps
