#include "engine/base/time_ratio.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "engine/base/error.h"
#include "engine/base/statistics.h"

namespace pipit::internal {

namespace {

constexpr std::size_t kMaxBlocks = 20;
constexpr std::size_t kMinBlock = 3;
constexpr int kResamples = 200;
constexpr double kMinError = 0.5;   // of the median one of what is judged together
constexpr std::size_t kMinCut = 6;  // processes; of fewer all are needed

using Units = std::vector<std::vector<double>>;

void check(const TimedProcesses& side) {
  if (side.empty()) fail("a comparison needs at least 1 run of each side");
  for (const std::vector<double>& process : side) {
    if (process.empty()) fail("a comparison needs at least 1 run of each process");
    for (const double ms : process) {
      if (!(ms > 0) || !std::isfinite(ms)) fail("a run of {} ms: times are positive", ms);
    }
  }
}

// Values that follow each other, in parts as equal as can be.
Units blocks_of(const std::vector<double>& values) {
  const std::size_t count = std::clamp<std::size_t>(values.size() / kMinBlock, 1, kMaxBlocks);
  Units blocks(count);
  for (std::size_t i = 0; i < values.size(); ++i) blocks[i * count / values.size()].push_back(values[i]);
  return blocks;
}

std::vector<double> joined(const Units& units) {
  std::vector<double> all;
  for (const std::vector<double>& unit : units) all.insert(all.end(), unit.begin(), unit.end());
  return all;
}

double median_of(const Units& units) {
  return quantile(joined(units), 0.5);
}

// The standard error of `statistic` over the units; infinite for one unit.
template <typename Statistic>
double standard_error(const Units& units, const Statistic& statistic) {
  const std::size_t count = units.size();
  if (count < 2) return std::numeric_limits<double>::infinity();
  std::mt19937 random(1);
  double sum = 0;
  double squares = 0;
  Units drawn(count);
  for (int r = 0; r < kResamples; ++r) {
    // Not std::uniform_int_distribution, which draws otherwise in other libraries.
    for (std::vector<double>& unit : drawn) unit = units[random() % count];
    const double value = statistic(drawn);
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kResamples;
  const double variance = std::max(squares / kResamples - mean * mean, 0.0);
  // Resampling has the spread of the units around their own mean, which is too small by this.
  return std::sqrt(variance * static_cast<double>(count) / static_cast<double>(count - 1));
}

// The mean of the middle half of the logarithms of the processes' medians.
struct MiddleMean {
  double mean = 0, variance = 0;  // variance: of the mean; only with kMinProcesses
  double freedom = 0;
};

MiddleMean middle_mean(const TimedProcesses& processes) {
  std::vector<double> logs;
  for (const std::vector<double>& process : processes) logs.push_back(std::log(quantile(process, 0.5)));
  std::ranges::sort(logs);
  const std::size_t count = logs.size();
  const std::size_t cut = count < kMinCut ? 0 : (count - 2) / 4;
  const auto kept = static_cast<double>(count - 2 * cut);
  MiddleMean result;
  for (std::size_t i = cut; i < count - cut; ++i) result.mean += logs[i] / kept;
  if (count < kMinProcesses) return result;
  // What is cut off counts as the nearest that stays.
  const auto clamped = [&](std::size_t i) { return logs[std::clamp(i, cut, count - 1 - cut)]; };
  double mean = 0;
  for (std::size_t i = 0; i < count; ++i) mean += clamped(i) / static_cast<double>(count);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += (clamped(i) - mean) * (clamped(i) - mean);
  result.variance = squares / (kept * (kept - 1));
  result.freedom = kept - 1;
  return result;
}

struct Difference {
  double log_ratio = 0;
  double error = std::numeric_limits<double>::infinity();  // standard error; infinite: unknown
  double freedom = 0;                                      // of Welch and Satterthwaite
  std::size_t repeats = 0;
};

Difference difference(const TimedPair& pair) {
  check(pair.first);
  check(pair.second);
  const MiddleMean a = middle_mean(pair.first);
  const MiddleMean b = middle_mean(pair.second);
  Difference result;
  result.log_ratio = b.mean - a.mean;
  result.repeats = std::min(pair.first.size(), pair.second.size());
  if (result.repeats < kMinProcesses) return result;
  const double variance = a.variance + b.variance;
  result.error = std::sqrt(variance);
  result.freedom =
      variance > 0
          ? variance * variance / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom)
          : std::min(a.freedom, b.freedom);
  return result;
}

TimeRatio judged(double log_ratio, double half, double margin, std::size_t repeats,
                 TimedRepeats repeats_are) {
  TimeRatio result;
  result.ratio = std::exp(log_ratio);
  result.low = std::exp(log_ratio - half);
  result.high = std::exp(log_ratio + half);
  result.margin = margin;
  result.repeats = repeats;
  result.repeats_are = repeats_are;
  if (std::isfinite(half)) result.verdict = TimeVerdict::no_difference;
  if (result.low > 1 + margin) result.verdict = TimeVerdict::slower;
  if (result.high < 1 / (1 + margin)) result.verdict = TimeVerdict::faster;
  return result;
}

}  // namespace

double typical_ms(const TimedProcesses& processes) {
  return processes.empty() ? 0 : std::exp(middle_mean(processes).mean);
}

double TimeRatio::shown_from() const {
  return std::exp(std::log1p(margin) + std::log(high / ratio)) - 1;
}

double TimeRatio::repeats_for(double share) const {
  // All but the margin shrinks with the square root of the repeats.
  const double stays = std::log1p(margin);
  const double room = std::log1p(share) - stays;
  const double now = std::log(high / ratio);
  if (room <= 0 || !std::isfinite(now)) return 0;
  return std::ceil(static_cast<double>(repeats) * now * now / (room * room));
}

std::vector<TimeRatio> compare_together(std::span<const TimedPair> pairs, double confidence) {
  std::vector<Difference> differences;
  std::vector<double> errors;
  for (const TimedPair& pair : pairs) {
    differences.push_back(difference(pair));
    if (std::isfinite(differences.back().error)) errors.push_back(differences.back().error);
  }
  const double least_error = errors.empty() ? 0 : kMinError * quantile(errors, 0.5);
  const double error_rate = (1 - confidence) / static_cast<double>(std::max<std::size_t>(pairs.size(), 1));
  std::vector<TimeRatio> ratios;
  for (const Difference& d : differences) {
    const double error = std::max(d.error, least_error);
    const double half =
        std::isfinite(error) && error > 0 ? student_limit(d.freedom, 1 - error_rate) * error : error;
    ratios.push_back(judged(d.log_ratio, half, 0, d.repeats, TimedRepeats::processes));
  }
  return ratios;
}

TimeRatio compare_times(const TimedProcesses& first, const TimedProcesses& second, double confidence) {
  const TimedPair pair{first, second};
  return compare_together({&pair, 1}, confidence)[0];
}

TimeRatio compare_turns(std::span<const double> first, std::span<const double> second, double confidence) {
  if (first.size() != second.size())
    fail("{} turns of one side, {} of the other", first.size(), second.size());
  check({{first.begin(), first.end()}});
  check({{second.begin(), second.end()}});
  std::vector<double> logs;
  for (std::size_t i = 0; i < first.size(); ++i) logs.push_back(std::log(second[i] / first[i]));
  const Units blocks = blocks_of(logs);
  const double half =
      student_limit(static_cast<double>(std::max<std::size_t>(blocks.size() - 1, 1)), confidence) *
      standard_error(blocks, median_of);
  return judged(median_of(blocks), half, kPlaceEffect, first.size(), TimedRepeats::runs);
}

double student_limit(double freedom, double confidence) {
  if (!(freedom >= 1) || !(confidence >= 0 && confidence < 1))
    fail("Student's distribution with {} degrees of freedom at {}", freedom, confidence);
  // With t = sqrt(freedom) tan(angle) the probability between -t and t is the integral of cos^(freedom - 1) from 0 to
  // the angle over that to a right angle. With many degrees of freedom all of it is near 0.
  constexpr int kSteps = 2000;
  const double last = std::min(std::numbers::pi / 2, 40 / std::sqrt(freedom));
  const double step = last / kSteps;
  std::vector<double> sums{0};
  for (int i = 0; i < kSteps; ++i)
    sums.push_back(sums.back() + std::pow(std::cos((i + 0.5) * step), freedom - 1));
  const double wanted = confidence * sums.back();
  const auto above = std::upper_bound(sums.begin(), sums.end(), wanted);
  const auto i = above - sums.begin() - 1;
  const double within = (wanted - *(above - 1)) / (*above - *(above - 1));
  return std::sqrt(freedom) * std::tan((static_cast<double>(i) + within) * step);
}

}  // namespace pipit::internal
