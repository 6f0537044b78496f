// What profiling a session finds.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace pipit::internal {

struct StepTime {
  int step = 0;
  double median_ms = 0;  ///< of the step's time in one run, all micro-batches together
  std::vector<double>
      ms;  ///< what it is the median of: run by run; on a GPU what it adds to the captured graph, at
           ///< least 0, for fewer runs where many would take long
};

/// One kernel call of a run.
struct TimedCall {
  int step = 0;
  double begin_ms = 0;  ///< since the run began; on a GPU: since its first kernel did
  double ms = 0;
};

/// One of the runs as it went: its calls in their order, each step once for every micro-batch.
struct RunTrace {
  int run = 0;
  double ms = 0;  ///< of the whole run; on a GPU: of its kernels
  std::vector<TimedCall> calls;
};

struct Profile {
  int runs = 0;
  std::vector<StepTime> steps;
  RunTrace trace;              ///< of the run whose time is nearest to the median
  double layers_ms = 0;        ///< median over runs of the sum of a run's step times
  double end_to_end_ms = 0;    ///< CPU: median time of a run. GPU: the same, with copies in and out
  std::vector<double> run_ms;  ///< what it is the median of: run by run
  double residual_ms = 0;      ///< CPU: end_to_end_ms - layers_ms. GPU: graph_ms - layers_ms
  double overhead_ms = 0;      ///< CPU: estimated cost of the profiler's own clock reads in one run
  double graph_ms = 0;         ///< GPU: median device time of one replay of the captured graph; 0 on the CPU
};

/// The position of the value that is nearest to `to`, the first of several. At least one value.
std::size_t nearest_run(std::span<const double> ms, double to);

}  // namespace pipit::internal
