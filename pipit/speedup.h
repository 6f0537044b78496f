/// @file
/// Speedups with their uncertainty.
#pragma once

namespace pipit::tools {

/// The median over turns of both, and its 95 % interval.
struct Speedup {
  double median = 0;  ///< times as fast; above 1: faster
  double low = 0;     ///< of the interval
  double high = 0;    ///< of the interval
};

}  // namespace pipit::tools
