#include "engine/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"

namespace pipit::internal {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) fail("a quantile needs at least 1 value");
  if (!(q >= 0 && q <= 1)) fail("a quantile of {}: expected 0 to 1", q);
  const double rank = q * static_cast<double>(values.size() - 1);
  const double below = std::floor(rank);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), at, values.end());
  if (at + 1 == values.end()) return *at;
  const double above = *std::min_element(at + 1, values.end());
  return *at + (rank - below) * (above - *at);
}

MedianInterval median_interval(std::vector<double> values, double confidence) {
  if (values.empty()) fail("a median needs at least 1 value");
  if (!(confidence > 0 && confidence < 1))
    fail("a confidence of {}: expected above 0 and below 1", confidence);
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  // P(at most k of n lie below the median), a term more with each k, by logarithms: 2^-n is 0 from n = 1075 on.
  const double most = (1 - confidence) / 2;
  double log_term = -static_cast<double>(n) * std::log(2.0);
  double below = std::exp(log_term);
  std::size_t k = 0;  // values that may be left out at either end
  while (below <= most) {
    log_term += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
    below += std::exp(log_term);
    ++k;
  }
  const std::size_t first = k == 0 ? 0 : k - 1;
  return {quantile(values, 0.5), values[first], values[n - 1 - first]};
}

Summary summarize(std::span<const double> values) {
  if (values.empty()) fail("a summary needs at least 1 value");
  const std::vector<double> copy(values.begin(), values.end());
  Summary summary;
  summary.count = copy.size();
  summary.mean = std::accumulate(copy.begin(), copy.end(), 0.0) / static_cast<double>(copy.size());
  summary.median = quantile(copy, 0.5);
  summary.p90 = quantile(copy, 0.9);
  summary.p99 = quantile(copy, 0.99);
  double squares = 0;
  for (const double v : copy) squares += (v - summary.mean) * (v - summary.mean);
  if (copy.size() > 1 && summary.mean != 0) {
    summary.cv = std::sqrt(squares / static_cast<double>(copy.size() - 1)) / std::abs(summary.mean);
  }
  return summary;
}

}  // namespace pipit::internal
