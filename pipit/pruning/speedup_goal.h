// When a pruned model is fast enough, and what to search for after one that is not.
#pragma once

#include "engine/base/statistics.h"

namespace pipit::internal::detail {

/// By how much the lower end of an interval may be below a speedup whose median reaches it, as a share.
inline constexpr double kSpeedupTolerance = 0.03;

/// The part of a measured speedup that counts: its median, or less if the lower end of its interval is further below
/// than kSpeedupTolerance.
double counted_speedup(const MedianInterval& speedup);

/// Whether counted_speedup() is at least `target`.
inline bool reaches(const MedianInterval& speedup, double target) {
  return counted_speedup(speedup) >= target;
}

/// The speedup that a selection has to have in the search so that the model made of it reaches `target`, after one that
/// did not: the search took it for `estimated` times as fast, and it was `measured`. The target grows by their ratio,
/// from 1 to 1.25, and never falls below `previous`, the last such speedup.
double corrected_target(double target, double previous, double estimated, const MedianInterval& measured);

}  // namespace pipit::internal::detail
