// Profiler: per-step wall time of a session's runs, its own overhead, and what no layer explains.
#pragma once

#include <chrono>
#include <vector>

#include "engine/session.h"

namespace pipit {

struct StepTime {
  int step = 0;
  double median_ms = 0;
};

struct Profile {
  int runs = 0;
  std::vector<StepTime> steps;
  double layers_ms = 0;      ///< median over runs of the sum of a run's step times
  double end_to_end_ms = 0;  ///< median over runs of the time from before_run to after_run
  double residual_ms = 0;    ///< end_to_end_ms - layers_ms: dispatch, clock reads, anything unexplained
  double overhead_ms = 0;    ///< estimated cost of the profiler's own clock reads in one run
};

/// Attach with Session::set_observer, run, detach, report. Memory grows by one double per step and run.
class Profiler final : public RunObserver {
 public:
  /// Reserves for `expected_runs` so that profiling a steady-state run allocates nothing.
  Profiler(const Plan& plan, int expected_runs);
  void before_run() override;
  void before_step(const Step& step) override;
  void after_step(const Step& step, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs) override;
  void after_run() override;
  /// Throws Error when no run was observed.
  Profile report() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::size_t steps_ = 0;
  std::vector<double> step_ms_;  ///< [run][step]
  std::vector<double> run_ms_;
  Clock::time_point run_start_;
  Clock::time_point step_start_;
};

}  // namespace pipit
