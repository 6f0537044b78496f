// Thresholds: how far the INT8 range of a tensor should reach, from its histogram.
#pragma once

#include <string>
#include <string_view>

#include "quant/histogram.h"

namespace pipit {

enum class ThresholdMethod : std::uint8_t {
  minmax,      ///< the largest magnitude: nothing is clipped
  percentile,  ///< the magnitude that a given share of the values does not exceed
  /// The magnitude at which the clipped distribution and its 128-level version differ least in Kullback-Leibler
  /// divergence (Migacz, "8-bit inference with TensorRT", GTC 2017).
  entropy,
  mse,  ///< the magnitude with the least mean squared error of quantizing, clipping included
};

/// "minmax", "percentile", "entropy" or "mse".
std::string_view threshold_method_name(ThresholdMethod method);

struct ThresholdOptions {
  ThresholdMethod method = ThresholdMethod::mse;
  double percentile = 99.99;  ///< in percent, for ThresholdMethod::percentile
};

/// The magnitude that becomes 127: at most the largest one counted; 0 where all values were zero. Exact zeros have
/// no say in it except in a percentile: every scale represents them. Throws Error for an empty histogram or a
/// percentile outside (0, 100].
double find_threshold(const Histogram& histogram, const ThresholdOptions& options);

/// The share of all values whose magnitude is larger than the threshold, to a bin's width.
double clipped_share(const Histogram& histogram, double threshold);

}  // namespace pipit
