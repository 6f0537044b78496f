#include "engine/runtime/profiler.h"

#include <algorithm>
#include <cmath>

#include "engine/base/statistics.h"

namespace pipit::internal {

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

std::size_t nearest_run(std::span<const double> ms, double to) {
  return static_cast<std::size_t>(
      std::ranges::min_element(ms, {}, [&](double value) { return std::abs(value - to); }) - ms.begin());
}

Profiler::Profiler(const ExecutionPlan& plan, int expected_runs)
    : steps_(plan.steps().size()), calls_per_step_(static_cast<double>(plan.micro_batches().count())) {
  const auto runs = static_cast<std::size_t>(std::max(expected_runs, 1));
  calls_.reserve(steps_ * runs * static_cast<std::size_t>(plan.micro_batches().count()));
  first_call_.reserve(runs);
  run_ms_.reserve(runs);
}

void Profiler::before_run() {
  first_call_.push_back(calls_.size());
  run_start_ = Clock::now();
}

void Profiler::before_step(const Step&) {
  step_start_ = Clock::now();
}

void Profiler::after_step(const Step& step, std::span<const ConstTensorView>, std::span<const TensorView>) {
  const double ms = milliseconds_since(step_start_);
  calls_.push_back(
      {step.index, std::chrono::duration<double, std::milli>(step_start_ - run_start_).count(), ms});
}

void Profiler::after_run() {
  run_ms_.push_back(milliseconds_since(run_start_));
}

Profile Profiler::report() const {
  const std::size_t runs = run_ms_.size();
  if (runs == 0) fail("the profiler saw no run");
  Profile profile;
  profile.runs = static_cast<int>(runs);
  const auto calls_of = [&](std::size_t run) {
    const std::size_t end = run + 1 < first_call_.size() ? first_call_[run + 1] : calls_.size();
    return std::span(calls_).subspan(first_call_[run], end - first_call_[run]);
  };
  std::vector<double> sums(runs, 0);
  std::vector<std::vector<double>> step_ms(steps_, std::vector<double>(runs, 0));
  for (std::size_t r = 0; r < runs; ++r) {
    for (const TimedCall& call : calls_of(r)) {
      step_ms[static_cast<std::size_t>(call.step)][r] += call.ms;
      sums[r] += call.ms;
    }
  }
  for (std::size_t s = 0; s < steps_; ++s)
    profile.steps.push_back({static_cast<int>(s), median(step_ms[s]), std::move(step_ms[s])});
  profile.layers_ms = median(sums);
  profile.end_to_end_ms = median(run_ms_);
  profile.run_ms = run_ms_;
  const std::size_t usual = nearest_run(run_ms_, profile.end_to_end_ms);
  const std::span<const TimedCall> calls = calls_of(usual);
  profile.trace = {static_cast<int>(usual), run_ms_[usual], {calls.begin(), calls.end()}};
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

}  // namespace pipit::internal
