// Whether one thing takes longer than another, from runs of both that were disturbed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipit {

/// Times of one thing: for each process that ran it, run by run in the order in which they were taken.
using TimedProcesses = std::vector<std::vector<double>>;

/// unknown: too few runs for an interval.
enum class TimeVerdict { no_difference, slower, faster, unknown };

/// What is repeated, and resampled.
enum class TimedRepeats { runs, processes, things };

/// Of the second thing's time over the first's.
struct TimeRatio {
  double ratio = 1;          ///< of the medians
  double low = 0, high = 0;  ///< its interval; infinitely wide where there are too few runs for one
  double margin = 0;         ///< what the interval must stay away from 1 for a verdict
  std::size_t repeats = 0;   ///< of the side with fewer
  TimedRepeats repeats_are = TimedRepeats::runs;
  TimeVerdict verdict = TimeVerdict::unknown;

  /// The smallest difference that data of this kind would show, as a share: 0.03 for 3 %.
  double shown_from() const;
  /// About how many repeats would show a difference of that share; 0 where no number does.
  double repeats_for(double share) const;
};

/// Times of the same program differ from process to process by about so much, with where its memory lies and on which
/// CPUs its threads run (Mytkowicz et al. 2009); one process says nothing about that.
inline constexpr double kProcessEffect = 0.01;

/// The medians' ratio with an interval at `confidence` in (0, 1) when `tests` verdicts are looked at together
/// (Bonferroni). The standard error of its logarithm is found by resampling (bootstrap), the interval is Student's with
/// the degrees of freedom of Welch and Satterthwaite. Where each side has three or more processes, these are what is
/// resampled: then the verdict holds for other processes as well (Kalibera and Jones 2013), and the margin is 0. Else
/// it is blocks of runs that follow each other, up to 20 for each side, because neighbours are disturbed by the same
/// (Carlstein 1986), and the margin is kProcessEffect or, where that is more, what the medians of a side's own fifths
/// differ by: what changes within one process changes between two as well. The same data gives the same answer. Throws
/// Error where a side has no runs, or a time that is not positive.
TimeRatio compare_times(const TimedProcesses& first, const TimedProcesses& second, double confidence = 0.95,
                        std::size_t tests = 1);

/// The same of runs in turns, first[i] beside second[i], in one process: the median of the ratios of single turns, in
/// which what disturbs both for longer cancels out. Throws Error where there are more of one than of the other.
TimeRatio compare_turns(std::span<const double> first, std::span<const double> second,
                        double confidence = 0.95);

/// Of many things, each timed on both sides by one process: the geometric mean of `ratios` (second over first, in the
/// order in which the things were timed), with the interval for other things of their kind. Resampled are blocks of
/// things that follow each other, up to 20, and the margin is kProcessEffect. Throws Error without ratios.
TimeRatio compare_things(std::span<const double> ratios, double confidence = 0.95);

/// t such that Student's distribution with `freedom` >= 1 degrees of freedom has `confidence`, in [0, 1), between -t
/// and t.
double student_limit(double freedom, double confidence);

}  // namespace pipit
