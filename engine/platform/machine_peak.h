// What a machine can do at best: what the time of a layer is held against.
#pragma once

#include <algorithm>

namespace pipit {

/// The ceilings of one device in one precision.
struct MachinePeak {
  double flops_per_second = 0;  ///< a multiply-accumulate counts as two
  double bytes_per_second = 0;  ///< to and from memory; bytes read and bytes written add up
  /// What the device's convolution kernel reaches while all its operands lie in the nearest cache; 0: not measured.
  double kernel_flops_per_second = 0;

  bool known() const { return flops_per_second > 0 && bytes_per_second > 0; }
  /// Milliseconds that no implementation can beat while it does this arithmetic and moves each of these bytes once:
  /// the roofline. Only where known().
  double floor_ms(double flops, double bytes) const {
    return 1e3 * std::max(flops / flops_per_second, bytes / bytes_per_second);
  }
};

}  // namespace pipit
