// What is compared: pipit's kernels and cuDNN's plans.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/sweep/configuration.h"
#include "tests/cuda/sweep/timer.h"

namespace pipit::sweep {

struct Measured {
  std::string engine;  ///< "int8", "int8 to f16", "fp16", "cudnn int8", "cudnn fp16 nhwc", "cudnn fp16 nchw"
  std::string kernel;  ///< the candidate and its variant, or the plan's number; the reason where nothing ran
  Times times;
  bool ran() const { return times.memory > 0; }
};

/// pipit's own kernels as the planner orders them, no libraries. every: all candidates in all their variants, too, as
/// engines of their own ("int8: ..."); named: or those of this one.
std::vector<Measured> measure_pipit(const Configuration& c, Timer& timer, bool every,
                                    const std::string& named);

/// cuDNN's fastest with all weights: of its first four INT8 plans that round as specified, and of its first four fp16
/// plans in which the bias is fused, channels last and first.
std::vector<Measured> measure_cudnn(const Configuration& c, Timer& timer);

}  // namespace pipit::sweep
