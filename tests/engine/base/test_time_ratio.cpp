#include "engine/base/time_ratio.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "engine/base/error.h"

namespace pipit {
namespace {

// From tables of Student's distribution.
TEST(StudentLimit, AgreesWithTables) {
  EXPECT_NEAR(student_limit(1, 0.95), 12.7062, 1e-3);
  EXPECT_NEAR(student_limit(2, 0.95), 4.30265, 1e-4);
  EXPECT_NEAR(student_limit(4, 0.9), 2.13185, 1e-4);
  EXPECT_NEAR(student_limit(10, 0.99), 3.16927, 1e-4);
  EXPECT_NEAR(student_limit(30, 0.999), 3.6460, 1e-3);
  EXPECT_NEAR(student_limit(1e6, 0.95), 1.95997, 1e-4);
  EXPECT_EQ(student_limit(5, 0), 0);
  EXPECT_THROW(student_limit(0.5, 0.95), Error);
  EXPECT_THROW(student_limit(5, 1), Error);
}

// Simulated runs: what a time is multiplied with, run by run.
using Noise = std::function<std::vector<double>(std::mt19937&, int runs)>;

// Right-skewed, as times are: other work only adds.
std::vector<double> independent(std::mt19937& random, int runs, double spread) {
  std::exponential_distribution<double> extra(1 / spread);
  std::vector<double> factors;
  for (int r = 0; r < runs; ++r) factors.push_back(1 + extra(random));
  return factors;
}

// A quiet machine: 2 % of spread, and every fiftieth run interrupted.
std::vector<double> quiet(std::mt19937& random, int runs) {
  std::vector<double> factors = independent(random, runs, 0.02);
  for (double& factor : factors) {
    if (random() % 50 == 0) factor += 0.5;
  }
  return factors;
}

// Neighbours depend on each other: the clock wanders by 3 %.
std::vector<double> wandering(std::mt19937& random, int runs) {
  std::vector<double> factors = independent(random, runs, 0.01);
  std::normal_distribution<double> normal;
  double drift = normal(random);
  for (double& factor : factors) {
    drift = 0.8 * drift + 0.6 * normal(random);
    factor *= std::exp(0.03 * drift);
  }
  return factors;
}

// Another process takes a core for some tens of runs at a time.
std::vector<double> bursts(std::mt19937& random, int runs) {
  std::vector<double> factors = independent(random, runs, 0.03);
  bool busy = false;
  for (double& factor : factors) {
    if (random() % 12 == 0) busy = !busy;
    if (busy) factor *= 1.6;
  }
  return factors;
}

TimedProcesses simulate(const Noise& noise, std::mt19937& random, int processes, int runs, double ms,
                        double process_spread) {
  std::normal_distribution<double> normal;
  TimedProcesses all;
  for (int p = 0; p < processes; ++p) {
    const double own = ms * std::exp(process_spread * normal(random));
    std::vector<double>& series = all.emplace_back();
    for (const double factor : noise(random, runs)) series.push_back(own * factor);
  }
  return all;
}

// Per cent of comparisons with this verdict.
int count(TimeVerdict verdict, const Noise& noise, double slowdown, int processes, int runs,
          double process_spread) {
  std::mt19937 random(5);
  constexpr int kComparisons = 400;
  int found = 0;
  for (int i = 0; i < kComparisons; ++i) {
    const TimedProcesses a = simulate(noise, random, processes, runs, 7, process_spread);
    const TimedProcesses b = simulate(noise, random, processes, runs, 7 * slowdown, process_spread);
    found += compare_times(a, b).verdict == verdict ? 1 : 0;
  }
  return 100 * found / kComparisons;
}

TEST(TimeRatio, TheSameBuildShowsNoDifference) {
  for (const Noise& noise : {Noise(quiet), Noise(wandering), Noise(bursts)}) {
    for (const int processes : {3, 5, 8})
      EXPECT_GE(count(TimeVerdict::no_difference, noise, 1, processes, 30, 0.02), 93) << processes;
  }
}

TEST(TimeRatio, ThreePercentAreFoundInQuietData) {
  EXPECT_GE(count(TimeVerdict::slower, quiet, 1.03, 5, 100, 0.002), 95);
  EXPECT_GE(count(TimeVerdict::faster, quiet, 1 / 1.03, 5, 100, 0.002), 95);
  EXPECT_GE(count(TimeVerdict::slower, quiet, 1.03, 10, 30, 0.01), 95);
}

TEST(TimeRatio, TurnsCancelWhatDisturbsBoth) {
  std::mt19937 random(3);
  int none = 0;
  int slower = 0;
  for (int i = 0; i < 100; ++i) {
    const std::vector<double> machine = bursts(random, 200);
    std::vector<double> a, b, c;
    const std::vector<double> own_a = quiet(random, 200);
    const std::vector<double> own_b = quiet(random, 200);
    for (std::size_t r = 0; r < machine.size(); ++r) {
      a.push_back(7 * machine[r] * own_a[r]);
      b.push_back(7 * machine[r] * own_b[r]);
      c.push_back(1.03 * b.back());
    }
    none += compare_turns(a, b).verdict == TimeVerdict::no_difference ? 1 : 0;
    slower += compare_turns(a, c).verdict == TimeVerdict::slower ? 1 : 0;
  }
  EXPECT_GE(none, 95);
  EXPECT_GE(slower, 95);
}

TEST(TimeRatio, SaysWhatWouldBeShown) {
  std::mt19937 random(1);
  const TimedProcesses a = simulate(wandering, random, 6, 60, 7, 0.02);
  const TimedProcesses b = simulate(wandering, random, 6, 60, 7, 0.02);
  const TimeRatio few = compare_times(a, b);
  EXPECT_EQ(few.repeats, 6U);
  EXPECT_LT(few.low, few.ratio);
  EXPECT_GT(few.high, few.ratio);
  EXPECT_EQ(few.margin, 0);
  // So many repeats would make the interval narrow enough, by the square root of their number.
  const double share = few.shown_from() / 2;
  const double needed = few.repeats_for(share);
  EXPECT_GE(needed, 4 * 6);
  EXPECT_NEAR(std::log1p(few.shown_from()) * std::sqrt(6 / needed), std::log1p(share), 0.02 * share);
  EXPECT_EQ(compare_times(a, b).low, few.low);  // the same answer again
  const TimeRatio many = compare_times(a, b, 0.95, 100);
  EXPECT_LT(many.low, few.low);
  EXPECT_GT(many.high, few.high);
  const TimeRatio turns = compare_turns(a[0], b[0]);
  EXPECT_EQ(turns.repeats, 60U);
  EXPECT_EQ(turns.margin, kPlaceEffect);
  EXPECT_EQ(turns.repeats_for(kPlaceEffect), 0);  // never, of one process
  EXPECT_GT(turns.shown_from(), turns.high / turns.ratio - 1 + kPlaceEffect);
}

TEST(TimeRatio, TooLittleShowsNothing) {
  const std::vector<double> runs(1000, 1);
  const std::vector<double> long_runs(1000, 5);
  for (const TimedProcesses& first : {TimedProcesses{runs}, TimedProcesses{runs, runs}}) {
    const TimeRatio ratio = compare_times(first, {long_runs, long_runs, long_runs});
    EXPECT_EQ(ratio.verdict, TimeVerdict::unknown);
    EXPECT_DOUBLE_EQ(ratio.ratio, 5);
    EXPECT_EQ(ratio.low, 0);
    EXPECT_EQ(ratio.high, std::numeric_limits<double>::infinity());
    EXPECT_EQ(ratio.repeats_for(0.03), 0);
  }
  EXPECT_EQ(compare_turns(std::vector<double>(5, 1), std::vector<double>(5, 5)).verdict,
            TimeVerdict::unknown);
}

TEST(TimeRatio, RefusesWhatIsNoTime) {
  EXPECT_THROW(compare_times({}, {{1}}), Error);
  EXPECT_THROW(compare_times({{1}}, {{}}), Error);
  EXPECT_THROW(compare_times({{1, 0}}, {{1}}), Error);
  EXPECT_THROW(compare_times({{1}}, {{std::numeric_limits<double>::quiet_NaN()}}), Error);
  const std::vector<double> two = {1, 2};
  EXPECT_THROW(compare_turns(two, std::vector<double>{1}), Error);
}

}  // namespace
}  // namespace pipit
