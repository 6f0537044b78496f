#include "quant/threshold.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"

namespace pipit {

namespace {

constexpr int kLevels = 128;  // magnitudes of symmetric int8, zero included

// The index of the last bin with a count, plus one.
std::size_t used_bins(const std::vector<std::uint64_t>& bins) {
  std::size_t used = bins.size();
  while (used > 0 && bins[used - 1] == 0) --used;
  return used;
}

double percentile_threshold(const Histogram& histogram, const std::vector<std::uint64_t>& bins,
                            double percent) {
  // Counting from the far end keeps the few large values exact.
  const double allowed = (1 - percent / 100) * static_cast<double>(histogram.count());
  std::uint64_t above = 0;
  for (std::size_t b = used_bins(bins); b > 0; --b) {
    above += bins[b - 1];
    if (static_cast<double>(above) > allowed) return static_cast<double>(b) * histogram.width();
  }
  // More zeros than the percentile: what is left is the smallest bin.
  return histogram.width();
}

// KL divergence between bins [0, size) with everything above in the last one, and their kLevels-level version.
double divergence(const std::vector<double>& bins, std::size_t size, double above, double total) {
  double q_total = 0;
  double result = 0;
  // Level l covers the bins [l * size / kLevels, (l + 1) * size / kLevels); its mass is spread over those of them
  // that are not empty.
  for (std::size_t level = 0; level < kLevels; ++level) {
    const std::size_t begin = level * size / kLevels;
    const std::size_t end = (level + 1) * size / kLevels;
    double mass = 0;
    int occupied = 0;
    for (std::size_t b = begin; b < end; ++b) {
      mass += bins[b];
      occupied += bins[b] > 0 || (b + 1 == size && above > 0) ? 1 : 0;
    }
    q_total += mass;
    if (occupied == 0) continue;
    // An empty level below clipped mass: a vanishing share instead of an infinite divergence.
    const double q = std::max(mass / occupied, total * 1e-12);
    for (std::size_t b = begin; b < end; ++b) {
      const double p = bins[b] + (b + 1 == size ? above : 0);
      if (p > 0) result += p * std::log(p / q);
    }
  }
  // With p and q normalized by their sums, sum p/P log((p/P) / (q/Q)).
  return q_total > 0 ? result / total + std::log(q_total / total) : std::numeric_limits<double>::infinity();
}

double entropy_threshold(const Histogram& histogram, const std::vector<std::uint64_t>& counts) {
  // Pairs of bins: 2048, as the method was published; the search is quadratic in them.
  std::vector<double> bins(counts.size() / 2);
  for (std::size_t b = 0; b < bins.size(); ++b)
    bins[b] = static_cast<double>(counts[2 * b] + counts[2 * b + 1]);
  std::size_t used = bins.size();
  while (used > 0 && bins[used - 1] == 0) --used;
  const double total = std::accumulate(bins.begin(), bins.end(), 0.0);
  double above =
      std::accumulate(bins.begin() + std::min<std::ptrdiff_t>(kLevels, static_cast<std::ptrdiff_t>(used)),
                      bins.begin() + static_cast<std::ptrdiff_t>(used), 0.0);
  std::size_t best = used;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t size = kLevels; size <= used; ++size) {
    const double d = divergence(bins, size, above, total);
    if (d <= least) {  // of equals the one that clips less
      least = d;
      best = size;
    }
    if (size < used) above -= bins[size];
  }
  return static_cast<double>(best) * 2 * histogram.width();
}

// Sum over all values of the squared difference to what int8 makes of them.
double squared_error(const std::vector<std::uint64_t>& bins, std::size_t used, double width,
                     double threshold) {
  const double scale = threshold / (kLevels - 1);
  double sum = 0;
  for (std::size_t b = 0; b < used; ++b) {
    const double value = (static_cast<double>(b) + 0.5) * width;
    const double error = value - std::min(std::nearbyint(value / scale), kLevels - 1.0) * scale;
    // A value within the bin is uniformly spread around its centre.
    sum += static_cast<double>(bins[b]) * (error * error + width * width / 12);
  }
  return sum;
}

double mse_threshold(const Histogram& histogram, const std::vector<std::uint64_t>& bins) {
  const std::size_t used = used_bins(bins);
  const std::size_t step = std::max<std::size_t>(1, used / 256);
  double best = histogram.max_magnitude();
  double least = squared_error(bins, used, histogram.width(), best);
  for (std::size_t b = step; b < used; b += step) {
    const double threshold = static_cast<double>(b) * histogram.width();
    const double error = squared_error(bins, used, histogram.width(), threshold);
    if (error < least) {
      least = error;
      best = threshold;
    }
  }
  return best;
}

}  // namespace

std::string_view threshold_method_name(ThresholdMethod method) {
  switch (method) {
    case ThresholdMethod::minmax:
      return "minmax";
    case ThresholdMethod::percentile:
      return "percentile";
    case ThresholdMethod::entropy:
      return "entropy";
    case ThresholdMethod::mse:
      return "mse";
  }
  return "?";
}

double find_threshold(const Histogram& histogram, const ThresholdOptions& options) {
  if (histogram.count() == 0) fail("no value was observed: there is nothing to take a threshold from");
  const double largest = histogram.max_magnitude();
  if (largest == 0) return 0;
  const std::vector<std::uint64_t> bins = histogram.magnitudes();
  double threshold = largest;
  switch (options.method) {
    case ThresholdMethod::minmax:
      break;
    case ThresholdMethod::percentile:
      if (!(options.percentile > 0 && options.percentile <= 100))
        fail("the percentile must be above 0 and at most 100, got {}", options.percentile);
      threshold = percentile_threshold(histogram, bins, options.percentile);
      break;
    case ThresholdMethod::entropy:
      threshold = entropy_threshold(histogram, bins);
      break;
    case ThresholdMethod::mse:
      threshold = mse_threshold(histogram, bins);
      break;
  }
  return std::min(threshold, largest);
}

double clipped_share(const Histogram& histogram, double threshold) {
  if (histogram.count() == 0 || threshold >= histogram.max_magnitude()) return 0;
  const std::vector<std::uint64_t> bins = histogram.magnitudes();
  const auto first = static_cast<std::size_t>(
      std::clamp(std::ceil(threshold / histogram.width()), 0.0, static_cast<double>(bins.size())));
  const std::uint64_t above =
      std::accumulate(bins.begin() + static_cast<std::ptrdiff_t>(first), bins.end(), std::uint64_t{0});
  return static_cast<double>(above) / static_cast<double>(histogram.count());
}

}  // namespace pipit
