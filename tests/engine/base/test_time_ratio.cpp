#include "engine/base/time_ratio.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "engine/base/error.h"

namespace pipit::internal {
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

// What whole processes differ by, in logarithms, in the order in which they ran.
using ProcessNoise = std::function<double(std::mt19937&, std::size_t process)>;

double normal_of(std::mt19937& random, double spread) {
  return spread * std::normal_distribution<double>()(random);
}

bool one_in(std::mt19937& random, std::uint32_t count) {
  return random() % count == 0;
}

// Student's distribution with two degrees of freedom: some processes are far off.
double heavy_tailed(std::mt19937& random, std::size_t) {
  const double scale = std::sqrt(std::exponential_distribution<double>(1)(random));
  return normal_of(random, 0.02) / std::max(scale, 1e-3);
}

const std::vector<std::pair<const char*, ProcessNoise>>& process_noises() {
  static const std::vector<std::pair<const char*, ProcessNoise>> noises = {
      {"normal", [](std::mt19937& random, std::size_t) { return normal_of(random, 0.02); }},
      {"less than between runs", [](std::mt19937& random, std::size_t) { return normal_of(random, 5e-4); }},
      {"heavy tails", heavy_tailed},
      {"skewed",
       [](std::mt19937& random, std::size_t) { return std::exponential_distribution<double>(20)(random); }},
      {"two speeds", [](std::mt19937& random,
                        std::size_t) { return (one_in(random, 2) ? 0.1 : 0) + normal_of(random, 0.003); }},
      {"one in five waits",
       [](std::mt19937& random, std::size_t) {
         return (one_in(random, 5) ? 0.4 : 0) + normal_of(random, 0.01);
       }},
      {"drift",
       [](std::mt19937& random, std::size_t process) {
         return 0.01 * static_cast<double>(process) + normal_of(random, 0.005);
       }},
  };
  return noises;
}

// Two sides of one build that ran in turns.
TimedPair in_turns(const ProcessNoise& noise, std::mt19937& random, std::size_t processes,
                   double slowdown = 1) {
  TimedPair sides;
  for (std::size_t p = 0; p < 2 * processes; ++p) {
    const double own = 7 * std::exp(noise(random, p)) * (p % 2 == 0 ? 1 : slowdown);
    std::vector<double>& series = (p % 2 == 0 ? sides.first : sides.second).emplace_back();
    for (const double factor : quiet(random, 20)) series.push_back(own * factor);
  }
  return sides;
}

// The most of `tries` that come true with a probability of at most `share`, but for one time in a thousand.
double most_of(int tries, double share) {
  return tries * share + 3.1 * std::sqrt(tries * share * (1 - share));
}

// The rate that is promised of comparisons of one build, which docs/cli.md tells for recorded processes.
TEST(TimeRatio, TheSameBuildShowsNoDifference) {
  constexpr int kComparisons = 1000;
  std::mt19937 random(5);
  for (const auto& [name, noise] : process_noises()) {
    for (const std::size_t processes : {3, 6}) {
      int shown = 0;
      for (int i = 0; i < kComparisons; ++i) {
        const auto [a, b] = in_turns(noise, random, processes);
        shown += compare_times(a, b).is_shown() ? 1 : 0;
      }
      EXPECT_LE(shown, most_of(kComparisons, 0.05)) << name << ", " << processes << " processes";
    }
  }
}

// Whole runs wander and layers do so too, or each layer has two speeds of its own; any layer that is shown makes the
// comparison wrong.
TEST(TimeRatio, LayersOfTheSameBuildShowNoDifferenceTogether) {
  constexpr int kComparisons = 200;
  constexpr std::size_t kLayers = 20;
  std::mt19937 random(7);
  for (const bool two_speeds : {false, true}) {
    for (const std::size_t processes : {3, 6}) {
      int shown = 0;
      for (int i = 0; i < kComparisons; ++i) {
        std::vector<double> whole(2 * processes);
        for (double& log : whole) log = heavy_tailed(random, 0);
        const ProcessNoise layer = [&](std::mt19937& r, std::size_t p) {
          return two_speeds ? (one_in(r, 2) ? 0.1 : 0) + normal_of(r, 0.003) : whole[p] + normal_of(r, 0.02);
        };
        std::vector<TimedPair> pairs;
        for (std::size_t l = 0; l < kLayers; ++l) pairs.push_back(in_turns(layer, random, processes));
        const std::vector<TimeRatio> ratios = compare_together(pairs);
        shown += std::ranges::any_of(ratios, &TimeRatio::is_shown) ? 1 : 0;
      }
      EXPECT_LE(shown, most_of(kComparisons, 0.05)) << processes << " processes, two speeds: " << two_speeds;
    }
  }
}

TEST(TimeRatio, OneLayerOfManyIsFound) {
  constexpr int kComparisons = 100;
  std::mt19937 random(11);
  const ProcessNoise noise = [](std::mt19937& r, std::size_t) { return normal_of(r, 0.005); };
  int found = 0;
  for (int i = 0; i < kComparisons; ++i) {
    std::vector<TimedPair> pairs = {in_turns(noise, random, 6, 1.1)};
    while (pairs.size() < 20) pairs.push_back(in_turns(noise, random, 6));
    const std::vector<TimeRatio> ratios = compare_together(pairs);
    found += ratios[0].verdict == TimeVerdict::slower ? 1 : 0;
  }
  EXPECT_GE(found, 0.9 * kComparisons);
}

// Equal processes, of which one in ten waits; without the cut-off about 40 % would be found.
TEST(TimeRatio, TenPercentAreFoundAlthoughProcessesWait) {
  constexpr int kComparisons = 300;
  std::mt19937 random(9);
  const auto noise = [](std::mt19937& r, std::size_t) {
    return (one_in(r, 10) ? 0.4 : 0) + normal_of(r, 0.01);
  };
  int slower = 0;
  for (int i = 0; i < kComparisons; ++i) {
    const auto [a, b] = in_turns(noise, random, 10, 1.1);
    slower += compare_times(a, b).verdict == TimeVerdict::slower ? 1 : 0;
  }
  EXPECT_GE(slower, 0.75 * kComparisons);
}

TEST(TimeRatio, TheTypicalTimeIsOfTheMiddleHalf) {
  EXPECT_EQ(typical_ms({}), 0);
  EXPECT_DOUBLE_EQ(typical_ms({{3, 1, 2}}), 2);
  EXPECT_NEAR(typical_ms({{1}, {1}, {8}}), 2, 1e-12);
  EXPECT_NEAR(typical_ms({{5}, {1}, {4}, {900}, {2}, {2}}), std::sqrt(std::sqrt(80)), 1e-12);
  EXPECT_NEAR(typical_ms({{1e-3}, {2}, {2}, {8}, {8}, {1e3}}), 4, 1e-12);
  EXPECT_NEAR(compare_times({{1}, {1}, {8}}, {{2}, {2}, {16}}).ratio, 2, 1e-12);
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
  // This number of repeats would make the interval narrow enough, by the square root of their number.
  const double share = few.shown_from() / 2;
  const double needed = few.repeats_for(share);
  EXPECT_GE(needed, 4 * 6);
  EXPECT_NEAR(std::log1p(few.shown_from()) * std::sqrt(6 / needed), std::log1p(share), 0.02 * share);
  EXPECT_EQ(compare_times(a, b).low, few.low);  // the same answer again
  const TimeRatio many = compare_together(std::vector<TimedPair>(100, {a, b}))[0];
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
  EXPECT_THROW(compare_times({{1}, {1}, {1}}, {{1}, {}, {1}}), Error);
  EXPECT_THROW(compare_times({{1, 0}}, {{1}}), Error);
  EXPECT_THROW(compare_times({{1}}, {{std::numeric_limits<double>::quiet_NaN()}}), Error);
  const std::vector<double> two = {1, 2};
  EXPECT_THROW(compare_turns(two, std::vector<double>{1}), Error);
}

}  // namespace
}  // namespace pipit::internal
