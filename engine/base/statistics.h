// What many timings of the same thing come to.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipit::internal {

/// The q-quantile, 0 <= q <= 1, of values in any order: linear interpolation between the two order statistics around
/// rank q (n - 1), counted from 0 (type 7 of Hyndman and Fan 1996; NumPy's default). q = 0.5 is the median: the
/// middle value, or the mean of the two. Throws Error without values or for q outside [0, 1].
double quantile(std::vector<double> values, double q);

/// A median and the range that holds the median of what the values were drawn from.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// The median of values in any order, with the order statistics around it that hold the population's median with at
/// least `confidence`, whatever the distribution (the sign test's interval; Conover, Practical nonparametric
/// statistics): for independent values the number below the median is binomial. Of too few values for that the least
/// and the largest. Throws Error without values or for a confidence outside (0, 1).
MedianInterval median_interval(std::vector<double> values, double confidence);

struct Summary {
  std::size_t count = 0;
  double mean = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  /// Coefficient of variation: sample standard deviation (n - 1) over the mean; 0 for one value or a mean of 0.
  double cv = 0;
};

/// Throws Error without values.
Summary summarize(std::span<const double> values);

}  // namespace pipit::internal
