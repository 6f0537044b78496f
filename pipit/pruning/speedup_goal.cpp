#include "pipit/pruning/speedup_goal.h"

#include <algorithm>

namespace pipit::internal::detail {

namespace {

constexpr double kMaxCorrection = 1.25;  // more is noise, which another measurement is better against

}  // namespace

double counted_speedup(const MedianInterval& speedup) {
  return std::min(speedup.median, speedup.low / (1 - kSpeedupTolerance));
}

double corrected_target(double target, double previous, double estimated, const MedianInterval& measured) {
  const double correction = std::clamp(estimated / counted_speedup(measured), 1.0, kMaxCorrection);
  return std::max(previous, target * correction);
}

}  // namespace pipit::internal::detail
