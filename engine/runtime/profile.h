// What profiling a session finds.
#pragma once

#include <vector>

namespace pipit {

struct StepTime {
  int step = 0;
  double median_ms = 0;    ///< of the step's time in one run, all micro-batches together
  std::vector<double> ms;  ///< what it is the median of: run by run
};

struct Profile {
  int runs = 0;
  std::vector<StepTime> steps;
  double layers_ms = 0;        ///< median over runs of the sum of a run's step times
  double end_to_end_ms = 0;    ///< CPU: median time of a run. GPU: the same, with copies in and out
  std::vector<double> run_ms;  ///< what it is the median of: run by run
  double residual_ms = 0;      ///< CPU: end_to_end_ms - layers_ms. GPU: graph_ms - layers_ms
  double overhead_ms = 0;      ///< CPU: estimated cost of the profiler's own clock reads in one run
  double graph_ms = 0;         ///< GPU: median device time of one replay of the captured graph; 0 on the CPU
};

}  // namespace pipit
