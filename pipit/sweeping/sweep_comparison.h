// Two sweeps held against each other, configuration by configuration.
#pragma once

#include "pipit/compare.h"
#include "pipit/sweeping/sweep_file.h"

namespace pipit::internal::detail {

/// Rows of the same layer and `how`: compare_together(), and compare_times() of the geometric means of all that
/// both have, process by process. What only one side has, or ran, is a row without a ratio after the others. Throws
/// Error where nothing is in common.
tools::TimeComparison compare_sweeps(const SweptRows& first, const SweptRows& second);

}  // namespace pipit::internal::detail
