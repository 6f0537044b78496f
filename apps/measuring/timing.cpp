#include "apps/measuring/timing.h"

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/platform/device.h"
#include "engine/runtime/profiler.h"

namespace pipit::apps {

namespace {

// At least this many turns and this long, unless one run takes very long.
constexpr int kLeastTurns = 9;
constexpr int kMostTurns = 400;
constexpr double kTurnsMs = 250;
constexpr double kUnsteady = 0.05;

double timed_run(Session& session, const ConstTensorView& input) {
  const Clock::time_point begin = Clock::now();
  session.run({&input, 1});
  return milliseconds_since(begin);
}

}  // namespace

std::string busy_note(const std::string& what, std::span<const double> ms) {
  const double cv = summarize(ms).cv;
  if (cv <= kUnsteady) return {};
  return fmt::format("note: {}: the times vary by {:.1f} % (above {:.0f} %): is the machine busy?", what,
                     100 * cv, 100 * kUnsteady);
}

std::string machine_description(const ExecutionPlan& plan) {
  const PlanOptions& options = plan.options();
  return options.device == DeviceKind::cuda ? gpu_description(options.gpu) : cpu_description();
}

Tensor first_batch(PreparedImages& images) {
  Tensor batch;
  images.for_each_batch([&](const ConstTensorView& input, std::int64_t first, std::int64_t) {
    if (first == 0) batch = to_layout(input, Layout::row_major);
  });
  return batch;
}

double relative_time(Session& session, Session& base, const ConstTensorView& input,
                     std::vector<double>& base_ms) {
  for (int warmup = 0; warmup < 2; ++warmup) {
    timed_run(session, input);
    timed_run(base, input);
  }
  std::vector<double> own, of_base;
  double sum = 0;
  for (int turn = 0; turn < kMostTurns && (turn < kLeastTurns || sum < kTurnsMs); ++turn) {
    own.push_back(timed_run(session, input));
    of_base.push_back(timed_run(base, input));
    sum += own.back() + of_base.back();
  }
  base_ms.insert(base_ms.end(), of_base.begin(), of_base.end());
  return quantile(std::move(own), 0.25) / quantile(std::move(of_base), 0.25);
}

std::map<std::string, double> step_times(const std::shared_ptr<const ExecutionPlan>& plan,
                                         const ConstTensorView& input, int runs) {
  Session session(plan);
  const Profile profile = profile_session(session, {&input, 1}, 2, runs);
  std::map<std::string, double> times;
  for (const StepTime& time : profile.steps) {
    const Step& step = plan->steps()[static_cast<std::size_t>(time.step)];
    times[plan->graph().nodes()[static_cast<std::size_t>(step.node)].name] += time.median_ms;
  }
  return times;
}

}  // namespace pipit::apps
