#include "engine/runtime/profiler.h"

#include <algorithm>

#include "engine/base/statistics.h"

namespace pipit {

namespace {

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

// What one read of the clock costs: the median of many, so that one interruption does not count.
double clock_read_ms() {
  std::vector<double> costs;
  for (int i = 0; i < 101; ++i) {
    const auto begin = Clock::now();
    for (int k = 0; k < 10; ++k) (void)Clock::now();
    costs.push_back(milliseconds_since(begin) / 11);
  }
  return median(std::move(costs));
}

}  // namespace

Profiler::Profiler(const ExecutionPlan& plan, int expected_runs)
    : steps_(plan.steps().size()), calls_per_step_(static_cast<double>(plan.micro_batches().count())) {
  const auto runs = static_cast<std::size_t>(std::max(expected_runs, 1));
  step_ms_.reserve(steps_ * runs);
  run_ms_.reserve(runs);
}

void Profiler::before_run() {
  step_ms_.resize(step_ms_.size() + steps_, 0);
  run_start_ = Clock::now();
}

void Profiler::before_step(const Step&) {
  step_start_ = Clock::now();
}

void Profiler::after_step(const Step& step, std::span<const ConstTensorView>, std::span<const TensorView>) {
  const double ms = milliseconds_since(step_start_);
  step_ms_[step_ms_.size() - steps_ + static_cast<std::size_t>(step.index)] += ms;
}

void Profiler::after_run() {
  run_ms_.push_back(milliseconds_since(run_start_));
}

Profile Profiler::report() const {
  const std::size_t runs = run_ms_.size();
  if (runs == 0) fail("the profiler saw no run");
  Profile profile;
  profile.runs = static_cast<int>(runs);
  std::vector<double> sums(runs, 0);
  for (std::size_t s = 0; s < steps_; ++s) {
    std::vector<double> times(runs);
    for (std::size_t r = 0; r < runs; ++r) {
      times[r] = step_ms_[r * steps_ + s];
      sums[r] += times[r];
    }
    profile.steps.push_back({static_cast<int>(s), median(times), std::move(times)});
  }
  profile.layers_ms = median(sums);
  profile.end_to_end_ms = median(run_ms_);
  profile.run_ms = run_ms_;
  profile.residual_ms = profile.end_to_end_ms - profile.layers_ms;
  profile.overhead_ms = clock_read_ms() * static_cast<double>(2 * steps_) * calls_per_step_;
  return profile;
}

Profile profile_session(Session& session, std::span<const ConstTensorView> inputs, int warmup, int runs,
                        const std::function<void(int)>& progress) {
  if (runs < 1) fail("profiling needs at least 1 run, not {}", runs);
  const std::function<void(int)> report = progress ? progress : [](int) {};
  if (DeviceSession* device = session.device_session()) return device->profile(inputs, warmup, runs, report);
  for (int r = 0; r < warmup; ++r) {
    session.run(inputs);
    report(r + 1);
  }
  Profiler profiler(session.plan(), runs);
  session.set_observer(&profiler);
  for (int r = 0; r < runs; ++r) {
    session.run(inputs);
    report(warmup + r + 1);
  }
  session.set_observer(nullptr);
  return profiler.report();
}

}  // namespace pipit
