// How often per second something is done, measured until it is known.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/platform/thread_pool.h"

namespace pipit::internal {

/// Rates of several rounds, per second.
struct MeasuredRate {
  double best = 0;  ///< what a floor is made of: nothing faster was seen
  double median = 0;
  double p10 = 0;  ///< one round in ten was slower
  int rounds = 0;

  /// How far the best round lies above a slow one, over the best: what another measurement may differ by.
  double spread() const { return best > 0 ? (best - p10) / best : 0; }
};

/// Throws Error without rates.
MeasuredRate rate_of(const std::vector<double>& rates);

/// Calls round(), which returns a rate, at least 9 times, and on until the median is known to 1 % (median_interval() at
/// 95 %), at most 50 times and about 0.4 s (measuring_ms()).
MeasuredRate measure_rate(const std::function<double()>& round);

/// The rate of all workers of the pool together, each of which calls work(task, steps) for steps of `amount` each, in
/// rounds of about 3 ms. Another load on the machine lowers it.
MeasuredRate measure_rate(ThreadPool& pool, double amount,
                          const std::function<void(std::int64_t task, std::int64_t steps)>& work);

}  // namespace pipit::internal
