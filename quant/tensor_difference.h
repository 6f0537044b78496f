// How far the values of a tensor are from those of a reference, over any number of runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/shape.h"

namespace pipit::internal {

class TensorDifference {
 public:
  /// Adds values of one run, row-major, both of the same `shape`: dimension 1 counts channels, below rank 2 there is
  /// one. `reach`: the magnitude beyond which a reference value is clipped; infinity where nothing is. Throws Error
  /// when a length is not that of the shape, or the number of channels another one than before.
  void add(const Shape& shape, std::span<const float> reference, std::span<const float> values, float reach);

  std::uint64_t count() const { return count_; }
  /// Sums of squares of the reference and of the difference.
  double signal() const;
  double noise() const;
  /// The cosine of the angle between the two: 1 where both are zero everywhere, 0 where only one is.
  double cosine() const;
  /// Signal to quantization noise, 10 log10(signal / noise): infinite without noise, minus infinity without signal.
  double sqnr_db() const;
  double max_error() const { return max_error_; }
  /// Share of the reference values beyond reach.
  double clipped() const;

  /// The channel with the largest part of the noise; the first one where there is none.
  struct Channel {
    std::int64_t index = 0;
    double noise_share = 0;
    double sqnr_db = 0;
  };
  Channel worst_channel() const;

 private:
  struct Sums {
    double signal = 0;
    double noise = 0;
  };
  std::vector<Sums> channels_;
  double values_ = 0;   // sum of squares
  double product_ = 0;  // reference times value
  double max_error_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t clipped_ = 0;
};

}  // namespace pipit::internal
