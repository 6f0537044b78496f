// Whether one thing takes longer than another, from runs of both that were disturbed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipit::internal {

/// Times of one thing: for each process that ran it, run by run in the order in which they were taken.
using TimedProcesses = std::vector<std::vector<double>>;

/// unknown: too few repeats for an interval.
enum class TimeVerdict { no_difference, slower, faster, unknown };

/// What is repeated, and resampled.
enum class TimedRepeats { runs, processes };

/// The ratio of the second thing's time to the first's.
struct TimeRatio {
  double ratio = 1;          ///< of typical_ms(), or the median of the turns' ratios
  double low = 0, high = 0;  ///< its interval; infinitely wide where there are too few repeats for one
  double margin = 0;         ///< what the interval must stay away from 1 for a verdict
  std::size_t repeats = 0;   ///< of the side with fewer
  TimedRepeats repeats_are = TimedRepeats::runs;
  TimeVerdict verdict = TimeVerdict::unknown;

  bool is_shown() const { return verdict == TimeVerdict::slower || verdict == TimeVerdict::faster; }
  /// The smallest difference that data of this kind would show, as a share: 0.03 for 3 %.
  double shown_from() const;
  /// About how many repeats would show a difference of that share; 0 where no number does.
  double repeats_for(double share) const;
};

/// Processes of each side for a verdict about programs. What disturbs a whole process cannot be seen inside it: where
/// its memory lies (Mytkowicz et al. 2009), how much of a shared host it got. With two, the spread would be a guess.
inline constexpr std::size_t kMinProcesses = 3;

/// What a process takes: the geometric mean of the processes' medians. With six and more, only the middle half of them
/// (rounded up, at least four) counts, so that a process that had to wait does not decide. 0 without a process. Throws
/// Error where one has no runs.
double typical_ms(const TimedProcesses& processes);

/// The ratio of typical_ms() with an interval at `confidence` in (0, 1) for other processes of both. A process counts
/// once, by the logarithm of its median: runs of one process are disturbed by the same. The interval is Student's with
/// the degrees of freedom of Welch and Satterthwaite; where outer processes are cut off, the variance is that of Yuen
/// 1974. Unknown where a side has fewer than kMinProcesses. The same data gives the same answer. Throws Error where a
/// process has no runs, or a time is not positive.
TimeRatio compare_times(const TimedProcesses& first, const TimedProcesses& second, double confidence = 0.95);

struct TimedPair {
  TimedProcesses first, second;
};

/// compare_times() of each pair, for verdicts that are looked at together: `confidence` is that of all intervals
/// (Bonferroni). No standard error is taken for less than half of the median one: among many, some of few processes
/// agree by chance.
std::vector<TimeRatio> compare_together(std::span<const TimedPair> pairs, double confidence = 0.95);

/// In one process the times of two things differ by about this factor depending on where their memory lies, which one
/// process cannot show.
inline constexpr double kPlaceEffect = 0.01;

/// Compares runs in turns, first[i] beside second[i], in one process: the median of the ratios of single turns, in
/// which a lasting disturbance of both cancels out. The bootstrap draws blocks of up to 20 consecutive turns, because
/// neighbours share disturbances (Carlstein 1986); the margin is kPlaceEffect. Throws Error where the two have
/// different lengths.
TimeRatio compare_turns(std::span<const double> first, std::span<const double> second,
                        double confidence = 0.95);

/// t such that Student's distribution with `freedom` >= 1 degrees of freedom has `confidence`, in [0, 1), between -t
/// and t.
double student_limit(double freedom, double confidence);

}  // namespace pipit::internal
