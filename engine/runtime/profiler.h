// Profiler: per-step wall time of a session's runs, its own overhead, and what no layer explains.
#pragma once

#include <functional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/runtime/profile.h"
#include "engine/runtime/session.h"

namespace pipit::internal {

/// Attach with Session::set_observer, run, detach, report. Memory grows by 24 bytes per kernel call.
class Profiler final : public RunObserver {
 public:
  /// Reserves for `expected_runs` so that profiling a steady-state run allocates nothing.
  Profiler(const ExecutionPlan& plan, int expected_runs);
  void before_run() override;
  void before_step(const Step& step) override;
  void after_step(const Step& step, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs) override;
  void after_run() override;
  /// Throws Error when no run was observed.
  Profile report() const;

 private:
  std::size_t steps_ = 0;
  double calls_per_step_;                ///< in one run
  std::vector<TimedCall> calls_;         ///< of all runs
  std::vector<std::size_t> first_call_;  ///< per run: where its calls begin
  std::vector<double> run_ms_;
  Clock::time_point run_start_;
  Clock::time_point step_start_;
};

/// Runs a session `warmup` times, then `runs` times with every step timed: by the Profiler on the CPU, by events on
/// a GPU, where the captured graph is timed as well. `progress` (may be empty) is called with the number of runs
/// done after each, warm-up included. Throws Error when runs < 1.
Profile profile_session(Session& session, std::span<const ConstTensorView> inputs, int warmup, int runs,
                        const std::function<void(int)>& progress = {});

}  // namespace pipit::internal
