// Histogram: the distribution of a tensor's values over any number of images, in constant memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/platform/thread_pool.h"

namespace pipit::internal {

/// Counts values in equal bins. The width of a bin is a power of two that depends only on the largest magnitude
/// seen: when a larger value arrives, neighbouring bins are joined, and floor(floor(x / w) / 2) = floor(x / 2w).
/// So the counts are exactly those of one pass with the final width, whatever the order of the values, how they
/// were cut into chunks, or which histogram of a merge saw them.
class Histogram {
 public:
  /// Bins on each side of zero. Bin b of [-kSide, kSide) holds the values in [b * width, (b + 1) * width).
  static constexpr int kSide = 4096;

  /// Throws Error when a value is NaN or infinite; nothing is counted then.
  void add(std::span<const float> values, ThreadPool& pool);
  /// Adds what the other one counted. Throws Error when one of them counts more than 2^62 values.
  void merge(const Histogram& other);

  std::uint64_t count() const { return count_; }
  /// How many values were exactly zero; they are part of bin 0.
  std::uint64_t zeros() const { return zeros_; }
  /// The minimum of all values; 0 while there are none.
  float min() const { return min_; }
  float max() const { return max_; }
  float max_magnitude() const { return -min_ > max_ ? -min_ : max_; }
  /// 0 while all values were zero.
  double width() const;
  std::uint64_t bin(int b) const { return bins_.empty() ? 0 : bins_[static_cast<std::size_t>(b + kSide)]; }

  /// Counts of the magnitudes: entry b holds those in [b * width, (b + 1) * width), without the exact zeros.
  std::vector<std::uint64_t> magnitudes() const;

  /// All of it as runs (first bin, counts...), and back. Throws Error when they cannot be from a histogram.
  struct Run {
    int first = 0;
    std::vector<std::uint64_t> counts;
  };
  struct State {
    float min = 0;
    float max = 0;
    std::uint64_t zeros = 0;
    int exponent = 0;  ///< width = 2^exponent
    std::vector<Run> runs;
  };
  State state() const;
  static Histogram from_state(const State& state);

 private:
  void widen(int exponent);

  std::vector<std::uint64_t> bins_;  // empty while all values were zero
  int exponent_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t zeros_ = 0;
  float min_ = 0;
  float max_ = 0;
};

}  // namespace pipit::internal
