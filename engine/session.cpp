#include "engine/session.h"

namespace pipit {

Session::Session(std::shared_ptr<const Plan> plan, std::shared_ptr<ThreadPool> pool)
    : plan_(std::move(plan)), pool_(std::move(pool)) {
  if (!pool_) pool_ = std::make_shared<ThreadPool>(plan_->options().threads);
  if (pool_->size() > plan_->options().threads) {
    fail("a pool of {} threads cannot run a plan built for {}", pool_->size(), plan_->options().threads);
  }
  if (plan_->options().device == DeviceKind::cuda) {
    device_ = make_cuda_session(plan_);
    return;
  }
  arena_ = HostBuffer(plan_->arena_bytes());
  const auto at = [&](const Placement& p) -> std::byte* {
    switch (p.kind) {
      case Placement::Kind::arena:
        return arena_.data() + p.offset;
      case Placement::Kind::constant:
        // Kernels never write to constants; outputs are placed in the arena only.
        return p.constant ? const_cast<std::byte*>(p.constant->view().data) : nullptr;
      case Placement::Kind::input:
      case Placement::Kind::absent:
        break;
    }
    return nullptr;
  };
  bound_.reserve(plan_->steps().size());
  for (const Step& step : plan_->steps()) {
    BoundStep bound;
    bound.step = &step;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Placement& p = step.inputs[i];
      bound.inputs.push_back({p.desc, at(p)});
      if (p.kind == Placement::Kind::input) bound.from_user.emplace_back(i, p.input);
    }
    for (const Placement& p : step.outputs) bound.outputs.push_back({p.desc, at(p)});
    bound.scratch = arena_.data() + step.scratch_offset;
    bound_.push_back(std::move(bound));
  }
  for (const Placement& p : plan_->outputs()) outputs_.push_back({p.desc, at(p)});
}

void Session::set_observer(RunObserver* observer) {
  if (device_ && observer != nullptr)
    fail("steps on a GPU cannot be observed from the host; use profile_session");
  observer_ = observer;
}

std::span<const ConstTensorView> Session::run(std::span<const ConstTensorView> inputs) {
  const Graph& graph = plan_->graph();
  if (inputs.size() != graph.inputs().size()) {
    fail("{} inputs given, the model has {}", inputs.size(), graph.inputs().size());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& expected = graph.value(graph.inputs()[i]);
    if (!inputs[i].present() || !(inputs[i].desc == expected.desc)) {
      fail("input '{}' must be {} {}, got {} {}", expected.name, expected.desc.str(),
           layout_name(expected.desc.layout), inputs[i].desc.str(),
           inputs[i].present() ? layout_name(inputs[i].desc.layout) : "without data");
    }
  }
  if (device_) return device_->run(inputs);
  if (observer_ != nullptr) observer_->before_run();
  for (BoundStep& bound : bound_) {
    for (const auto& [operand, input] : bound.from_user) {
      bound.inputs[operand].data = inputs[static_cast<std::size_t>(input)].data;
    }
    if (observer_ != nullptr) observer_->before_step(*bound.step);
    try {
      bound.step->kernel->run(bound.inputs, bound.outputs, RunContext{*pool_, bound.scratch});
    } catch (const Error& e) {
      const Node& node = graph.nodes()[static_cast<std::size_t>(bound.step->node)];
      fail("node '{}' ({}): {}", node.name, node.layer->type(), e.what());
    }
    if (observer_ != nullptr) observer_->after_step(*bound.step, bound.inputs, bound.outputs);
  }
  if (observer_ != nullptr) observer_->after_run();
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Placement& p = plan_->outputs()[i];
    if (p.kind == Placement::Kind::input) outputs_[i].data = inputs[static_cast<std::size_t>(p.input)].data;
  }
  return outputs_;
}

}  // namespace pipit
