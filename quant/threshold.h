// Thresholds: how far the INT8 range of a tensor should reach, from its histogram.
#pragma once

#include <string>
#include <string_view>

#include "quant/histogram.h"

namespace pipit::internal {

enum class ThresholdMethod : std::uint8_t {
  minmax,      ///< the largest magnitude: nothing is clipped
  percentile,  ///< the magnitude that a given share of the values does not exceed
  /// The magnitude at which the clipped distribution and its 128-level version differ least in Kullback-Leibler
  /// divergence (Migacz, "8-bit inference with TensorRT", GTC 2017). What is clipped is missing in the latter.
  entropy,
  mse,  ///< the magnitude with the least mean squared error of quantizing, clipping included
};

/// "minmax", "percentile", "entropy" or "mse".
std::string_view threshold_method_name(ThresholdMethod method);

struct ThresholdOptions {
  ThresholdMethod method = ThresholdMethod::mse;
  double percentile = 99.99;  ///< in percent, for ThresholdMethod::percentile
};

/// How much more than with the best threshold the noise of rounding and clipping may be.
inline constexpr double kMaxLossDb = 4;

struct Threshold {
  double magnitude = 0;  ///< that becomes 127
  bool moved = false;    ///< the method's own is another one, which costs too much
};

/// At most the largest magnitude counted; 0 where all values were zero. Exact zeros have no say in it except in a
/// percentile: every scale represents them. No method may cost a tensor much more than another: where the squared error
/// of rounding and clipping is over kMaxLossDb above the minimum over thresholds, and above what 8 bits cost evenly
/// spread values, the next one within that is taken. (A percentile of a tensor that is almost all zeros clips
/// everything else; the largest magnitude may be a lone value that leaves one level to all others.) Throws Error for an
/// empty histogram or a percentile outside (0, 100].
Threshold find_threshold(const Histogram& histogram, const ThresholdOptions& options);

/// The share of all values that are clipped, to a bin's width: those beyond 127.5 steps, of which the threshold is 127.
/// What lies below is rounded to 127 and loses no more than others do.
double clipped_share(const Histogram& histogram, double threshold);

}  // namespace pipit::internal
