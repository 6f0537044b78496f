#include "pipit/measuring/timing.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/measuring_time.h"
#include "engine/base/statistics.h"
#include "engine/platform/device.h"
#include "engine/runtime/profiler.h"

namespace pipit::internal::detail {

namespace {

// Limits of ComparableStepTimes.
constexpr int kMinStepTurns = 2;
constexpr double kStepTurnsMs = 250;
constexpr int kStepRuns = 3;
constexpr double kUnsteady = 0.05;

}  // namespace

std::string busy_note(const std::string& what, std::span<const double> ms) {
  const double cv = summarize(ms).cv;
  if (cv <= kUnsteady) return {};
  return fmt::format("{}: the times vary by {:.1f} % (above {:.0f} %): is the machine busy?", what, 100 * cv,
                     100 * kUnsteady);
}

std::string machine_description(const ExecutionPlan& plan) {
  const PlanOptions& options = plan.options();
  return options.device == DeviceKind::cuda ? gpu_description(options.gpu) : cpu_description();
}

std::vector<Tensor> first_batch(PreparedImages& images) {
  std::vector<Tensor> batch;
  images.for_each_batch([&](std::span<const ConstTensorView> inputs, std::int64_t first, std::int64_t) {
    for (const ConstTensorView& input : inputs) {
      if (first == 0) batch.push_back(to_layout(input, Layout::row_major));
    }
  });
  return batch;
}

std::vector<ConstTensorView> views_of(const std::vector<Tensor>& tensors) {
  std::vector<ConstTensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

namespace {

// A step's time is that of its first node, which the others only follow; a chain's is shared out by products.
std::map<std::string, double> by_node(const ExecutionPlan& plan, const Profile& profile) {
  const Graph& graph = plan.graph();
  const auto macs = [&](const Node& node) {
    return static_cast<double>(node.layer->work(graph.input_descs(node), graph.output_descs(node)).macs);
  };
  std::map<std::string, double> times;
  for (const StepTime& time : profile.steps) {
    const Step& step = plan.steps()[static_cast<std::size_t>(time.step)];
    std::vector<const Node*> nodes = {&graph.nodes()[static_cast<std::size_t>(step.node)]};
    if (step.is_chain) {
      for (const int next : step.fused) nodes.push_back(&graph.nodes()[static_cast<std::size_t>(next)]);
    }
    double all = 0;
    for (const Node* node : nodes) all += macs(*node);
    for (const Node* node : nodes)
      times[node->name] += time.median_ms * (nodes.size() == 1 ? 1 : macs(*node) / std::max(all, 1.0));
  }
  return times;
}

}  // namespace

std::map<std::string, double> step_times(const std::shared_ptr<const ExecutionPlan>& plan,
                                         std::span<const ConstTensorView> inputs, int runs) {
  Session session(plan);
  return by_node(*plan, profile_session(session, inputs, 2, runs));
}

ComparableStepTimes::ComparableStepTimes(const std::shared_ptr<const ExecutionPlan>& base,
                                         std::span<const ConstTensorView> inputs)
    : base_(base), inputs_(inputs) {
  base_.run(inputs_);
}

std::map<std::string, double> ComparableStepTimes::operator()(
    const std::shared_ptr<const ExecutionPlan>& plan) {
  Session session(plan);
  session.run(inputs_);
  std::map<std::string, std::vector<double>> turns;
  std::vector<double> base_ms;
  const Clock::time_point begin = Clock::now();
  // A median over a few milliseconds, which is what a few turns of a small model take, would be what another process
  // makes of it that gets a core for as long.
  for (int turn = 0; turn < kMinStepTurns || milliseconds_since(begin) < measuring_ms(kStepTurnsMs); ++turn) {
    const Profile own = profile_session(session, inputs_, 1, kStepRuns);
    base_ms.push_back(profile_session(base_, inputs_, 1, kStepRuns).layers_ms);
    for (const auto& [node, ms] : by_node(*plan, own)) turns[node].push_back(ms / base_ms.back());
  }
  if (usual_ms_ == 0) usual_ms_ = quantile(base_ms, 0.25);
  std::map<std::string, double> times;
  for (auto& [node, shares] : turns) times[node] = usual_ms_ * quantile(std::move(shares), 0.5);
  return times;
}

}  // namespace pipit::internal::detail
