// What the sweep compares: pipit's kernels and cuDNN.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda/sweep/grid.h"
#include "tests/cuda/sweep/timer.h"

namespace pipit::sweep {

struct Measured {
  std::string engine;  ///< "int8", "int8 to f16", "fp16", "cudnn nhwc", "cudnn nchw", "cudnn fused nhwc", ...
  std::string kernel;  ///< the candidate and its variant, or the plan's number; the reason where nothing ran
  Times times;
  bool ran() const { return times.memory > 0; }
};

/// pipit's own kernels as the planner orders them, no libraries. every: all candidates in all their variants, too, as
/// engines of their own ("int8: ..."); named: or those of this one.
std::vector<Measured> measure_pipit(const Configuration& c, Timer& timer, bool every,
                                    const std::string& named);

/// cuDNN in fp16, channels last and first: as PyTorch calls it, the first plan of the heuristics and a kernel that adds
/// the bias; and the fastest of `proposals` plans in which the bias is fused. Nothing without cuDNN.
std::vector<Measured> measure_cudnn(const Configuration& c, Timer& timer, int proposals);

/// The fastest of cuDNN's INT8 plans that round as specified, of at most so many ("cudnn int8").
std::vector<Measured> measure_cudnn_int8(const Configuration& c, Timer& timer, int proposals);

}  // namespace pipit::sweep
