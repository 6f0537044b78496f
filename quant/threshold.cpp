#include "quant/threshold.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

constexpr int kLevels = 128;  // magnitudes of symmetric int8, zero included
// Noise over signal of values that are spread evenly up to the threshold: 48 dB. Less is never too much, as of a tensor
// whose values lie within one level.
constexpr double kNegligibleNoise = 1.0 / (4 * 127 * 127);

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

// KL divergence between bins [0, size) with everything above in the last one, and what is left of them when those above
// are gone and the others are put into kLevels levels. The second one is divided by the number of all values, not by
// its own: as published, by its own, clipping costs nothing where all that is not clipped lies in one level.
double divergence(const std::vector<double>& bins, std::size_t size, double above, double total) {
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
    if (occupied == 0) continue;
    // An empty level below clipped mass: a vanishing share instead of an infinite divergence.
    const double q = std::max(mass / occupied, total * 1e-12);
    for (std::size_t b = begin; b < end; ++b) {
      const double p = bins[b] + (b + 1 == size ? above : 0);
      if (p > 0) result += p * std::log(p / q);
    }
  }
  return result / total;
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

// What int8 does to the values of a histogram, which are taken to lie evenly spread within each bin, but in the first
// one to become fewer as fast as from there to the second: lone large values leave all others in it.
class Noise {
 public:
  Noise(const std::vector<std::uint64_t>& bins, double width)
      : bins_(bins), used_(used_bins(bins)), width_(width), first_(width * width / 3) {
    const auto ahead = static_cast<double>(bins[0]),
               behind = static_cast<double>(std::max<std::uint64_t>(bins[1], 1));
    if (ahead <= behind) return;
    const double decay = width / std::log(ahead / behind);
    first_ = std::min(first_, 2 * decay * decay);
  }

  /// The sum over all values of the squared difference to what rounding to multiples of threshold / 127 and clipping
  /// at the threshold make of them; without those of the first `skipped` bins.
  double at(double threshold, std::size_t skipped = 0) const {
    const double scale = threshold / (kLevels - 1);
    // The integral of the squared difference from 0 to x.
    const auto integral = [&](double x) {
      const double inside = std::min(x, threshold);
      const double level = std::nearbyint(inside / scale);
      const double rest = inside - level * scale;
      const double beyond = x - inside;
      return level * scale * scale * scale / 12 + rest * rest * rest / 3 + beyond * beyond * beyond / 3;
    };
    double sum = 0;
    double before = integral(static_cast<double>(skipped) * width_);
    for (std::size_t b = skipped; b < used_; ++b) {
      const double now = integral(static_cast<double>(b + 1) * width_);
      const double error = (now - before) / width_;
      // Rounding changes no value by more than itself.
      sum += static_cast<double>(bins_[b]) * (b == 0 ? std::min(error, first_) : error);
      before = now;
    }
    return sum;
  }

  /// The sum of the squares of all values.
  double signal() const {
    double sum = 0;
    for (std::size_t b = 0; b < used_; ++b) {
      const double low = static_cast<double>(b) * width_, high = low + width_;
      sum += static_cast<double>(bins_[b]) * (b == 0 ? first_ : (high * high + high * low + low * low) / 3);
    }
    return sum;
  }

  double width() const { return width_; }
  /// Between thresholds that are tried: a 256th of the range.
  double step() const { return static_cast<double>(std::max<std::size_t>(1, used_ / 256)) * width_; }

 private:
  const std::vector<std::uint64_t>& bins_;
  std::size_t used_;
  double width_;
  double first_;  // the mean square of the values in the first bin
};

struct CandidateThreshold {
  double threshold = 0;
  double noise = 0;
};

CandidateThreshold least_noise(const Noise& noise, double largest) {
  CandidateThreshold best{largest, noise.at(largest)};
  const auto take = [&](double threshold) {
    const double sum = noise.at(threshold);
    if (sum < best.noise) best = {threshold, sum};
  };
  for (double t = noise.step(); t < largest; t += noise.step()) take(t);
  // A threshold that is far below the largest value lies between two of these.
  const double near = best.threshold;
  for (double t = near - noise.step() + noise.width(); t < std::min(near + noise.step(), largest);
       t += noise.width()) {
    if (t > 0) take(t);
  }
  return best;
}

// The threshold between a method's and the one of least noise, as near to the method's as keeps within kMaxLossDb.
// That holds without the first bin as well: its values are known least exactly, and where nearly all lie in it a
// guess that is too large would hide what is clipped.
double bounded(const Noise& noise, double own, const CandidateThreshold& best) {
  const double loss = std::pow(10, kMaxLossDb / 10), enough = noise.signal() * kNegligibleNoise;
  const double most = std::max(best.noise * loss, enough);
  const double most_behind = std::max(noise.at(best.threshold, 1) * loss, enough);
  const double step = best.threshold > own ? noise.step() : -noise.step();
  for (double t = own; step > 0 ? t < best.threshold : t > best.threshold; t += step) {
    if (noise.at(t) <= most && noise.at(t, 1) <= most_behind) return t;
  }
  return best.threshold;
}

double methods_own(const Histogram& histogram, const std::vector<std::uint64_t>& bins,
                   const ThresholdOptions& options, double least_noise) {
  switch (options.method) {
    case ThresholdMethod::minmax:
      return histogram.max_magnitude();
    case ThresholdMethod::percentile:
      return percentile_threshold(histogram, bins, options.percentile);
    case ThresholdMethod::entropy:
      return entropy_threshold(histogram, bins);
    case ThresholdMethod::mse:
      break;
  }
  return least_noise;
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

Threshold find_threshold(const Histogram& histogram, const ThresholdOptions& options) {
  if (histogram.count() == 0) fail("no value was observed: there is nothing to take a threshold from");
  if (options.method == ThresholdMethod::percentile && !(options.percentile > 0 && options.percentile <= 100))
    fail("the percentile must be above 0 and at most 100, got {}", options.percentile);
  const double largest = histogram.max_magnitude();
  if (largest == 0) return {};
  const std::vector<std::uint64_t> bins = histogram.magnitudes();
  const Noise noise(bins, histogram.width());
  const CandidateThreshold best = least_noise(noise, largest);
  const double own = std::min(methods_own(histogram, bins, options, best.threshold), largest);
  const double threshold = bounded(noise, own, best);
  return {threshold, threshold != own};
}

double clipped_share(const Histogram& histogram, double threshold) {
  const double reach = threshold * (kLevels - 0.5) / (kLevels - 1);
  if (histogram.count() == 0 || reach >= histogram.max_magnitude()) return 0;
  const std::vector<std::uint64_t> bins = histogram.magnitudes();
  const auto first = static_cast<std::size_t>(
      std::clamp(std::ceil(reach / histogram.width()), 0.0, static_cast<double>(bins.size())));
  const std::uint64_t above =
      std::accumulate(bins.begin() + static_cast<std::ptrdiff_t>(first), bins.end(), std::uint64_t{0});
  return static_cast<double>(above) / static_cast<double>(histogram.count());
}

}  // namespace pipit::internal
