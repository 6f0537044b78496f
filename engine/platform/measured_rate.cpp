#include "engine/platform/measured_rate.h"

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/measuring_time.h"
#include "engine/base/statistics.h"

namespace pipit::internal {

namespace {

constexpr double kRoundMs = 3;  // short: beside other work some rounds are not interrupted
constexpr std::size_t kMinRounds = 9;
constexpr std::size_t kMaxRounds = 50;
constexpr double kKnown = 0.01;
constexpr double kMaxMs = 400;  // beside other work

}  // namespace

MeasuredRate rate_of(const std::vector<double>& rates) {
  return {quantile(rates, 1), quantile(rates, 0.5), quantile(rates, 0.1), static_cast<int>(rates.size())};
}

MeasuredRate measure_rate(const std::function<double()>& round) {
  std::vector<double> rates;
  const double most_ms = measuring_ms(kMaxMs);
  const Clock::time_point begin = Clock::now();
  while (rates.size() < kMaxRounds) {
    rates.push_back(round());
    if (rates.size() < kMinRounds) continue;
    if (milliseconds_since(begin) > most_ms) break;
    const MedianInterval known = median_interval(rates, 0.95);
    if (known.high - known.low < 2 * kKnown * known.median) break;
  }
  return rate_of(rates);
}

MeasuredRate measure_rate(ThreadPool& pool, double amount,
                          const std::function<void(std::int64_t task, std::int64_t steps)>& work) {
  std::int64_t steps = 1;
  std::vector<double> own_ms(static_cast<std::size_t>(pool.size()));
  const auto milliseconds = [&] {
    const Clock::time_point begin = Clock::now();
    // One task per worker, each far longer than it takes to wake one.
    pool.parallel_for(pool.size(), [&](std::int64_t task, int /*worker*/) {
      const Clock::time_point start = Clock::now();
      work(task, steps);
      own_ms[static_cast<std::size_t>(task)] = milliseconds_since(start);
    });
    return milliseconds_since(begin);
  };
  // By the fastest worker: beside other work it takes others long to begin.
  const auto fastest_ms = [&] {
    milliseconds();
    return *std::min_element(own_ms.begin(), own_ms.end());
  };
  // Also long enough to reach high clock rates.
  for (double ms = fastest_ms(); ms < kRoundMs / 2; ms = fastest_ms())
    steps *= std::clamp<std::int64_t>(static_cast<std::int64_t>(kRoundMs / std::max(ms, 1e-3)), 2, 1000);
  return measure_rate(
      [&] { return 1e3 * amount * static_cast<double>(steps) * pool.size() / milliseconds(); });
}

}  // namespace pipit::internal
