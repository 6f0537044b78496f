#include "engine/runtime/session.h"

#include <cstdint>
#include <cstring>
#include <functional>

#include "engine/base/clock.h"
#include "engine/plan/memory_planner.h"
#include "engine/platform/float_mode.h"

namespace pipit::internal {

namespace {

// Bytes from the first sample of a value to another one. Dimension 0 is the outermost in every layout.
std::size_t sample_offset(const TensorDesc& whole, const MicroBatches& batches, std::int64_t sample) {
  return sample == 0
             ? 0
             : whole.bytes() / static_cast<std::size_t>(batches.samples) * static_cast<std::size_t>(sample);
}

bool bytes_overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  const std::less<const std::byte*> before;
  return a_bytes > 0 && b_bytes > 0 && before(a, b + b_bytes) && before(b, a + a_bytes);
}

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kArenaAlignment == 0;
}

}  // namespace

Session::Session(std::shared_ptr<const ExecutionPlan> plan, std::shared_ptr<ThreadPool> pool)
    : plan_(std::move(plan)), pool_(std::move(pool)) {
  if (!pool_) pool_ = shared_pool(plan_->options().threads);
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
    bound.state = zeroed_host_buffer(step.kernel->state_bytes());
    bound_.push_back(std::move(bound));
  }
  std::vector<std::vector<OutputUse>> uses = find_output_uses(*plan_);
  for (std::size_t i = 0; i < plan_->outputs().size(); ++i) {
    const Placement& p = plan_->outputs()[i];
    std::byte* const own = p.kind == Placement::Kind::arena ? at(p) : nullptr;
    outputs_.push_back({p.desc, at(p)});
    places_.push_back({std::move(uses[i]), own, own});
  }
}

std::span<const ConstTensorView> Session::run(std::span<const ConstTensorView> inputs) {
  check_inputs(inputs);
  const ScopedFloatMode mode(FloatMode().without_denormals());
  if (device_) return observer_ == nullptr ? device_->run(inputs) : device_->run_observed(inputs, *observer_);
  for (std::size_t i = 0; i < places_.size(); ++i) place_output(i, places_[i].own);
  compute(inputs, {});
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Placement& p = plan_->outputs()[i];
    if (p.kind == Placement::Kind::input) outputs_[i].data = inputs[static_cast<std::size_t>(p.input)].data;
  }
  return outputs_;
}

void Session::run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
  check(inputs, outputs);
  if (device_) {
    const std::span<const ConstTensorView> results = run(inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      std::memcpy(outputs[i].data, results[i].data, outputs[i].desc.bytes());
    return;
  }
  const ScopedFloatMode mode(FloatMode().without_denormals());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    OutputPlace& place = places_[i];
    place_output(i, place.uses.empty() || !is_aligned(outputs[i].data) ? place.own : outputs[i].data);
  }
  compute(inputs, outputs);
  const bool gathered = plan_->micro_batches().cut();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Placement& p = plan_->outputs()[i];
    const std::byte* from = p.kind == Placement::Kind::input ? inputs[static_cast<std::size_t>(p.input)].data
                            : p.kind == Placement::Kind::arena ? places_[i].now
                                                               : outputs_[i].data;
    if (from == outputs[i].data || (gathered && p.kind == Placement::Kind::arena)) continue;
    std::memcpy(outputs[i].data, from, outputs[i].desc.bytes());
  }
}

void Session::run_on_device(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                            void* stream) {
  if (!device_)
    throw ArgumentError(fmt::format("GPU memory needs a model on a GPU; this one runs on the CPU"));
  check(inputs, outputs);
  device_->run_on_device(inputs, outputs, stream);
}

void Session::check_inputs(std::span<const ConstTensorView> inputs) const {
  const Graph& graph = plan_->graph();
  if (inputs.size() != graph.inputs().size()) {
    throw ArgumentError(fmt::format("got {} inputs, the model has {}", inputs.size(), graph.inputs().size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Value& expected = graph.value(graph.inputs()[i]);
    if (!inputs[i].present() || !(inputs[i].desc == expected.desc)) {
      throw ArgumentError(
          fmt::format("input '{}' must be {} {}, got {} {}", expected.name, expected.desc.str(),
                      layout_name(expected.desc.layout), inputs[i].desc.str(),
                      inputs[i].present() ? layout_name(inputs[i].desc.layout) : "without data"));
    }
  }
  // The run would overwrite it while it is read. (On a GPU inputs are copied first.)
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_own(inputs[i].data, inputs[i].desc.bytes()))
      throw ArgumentError(fmt::format(
          "input '{}' lies in the memory of this session, as its outputs do: copy it before the next run",
          graph.value(graph.inputs()[i]).name));
  }
}

void Session::check_outputs(std::span<const ConstTensorView> inputs,
                            std::span<const TensorView> outputs) const {
  const Graph& graph = plan_->graph();
  const std::vector<std::string>& names = graph.output_names();
  if (outputs.size() != graph.outputs().size()) {
    throw ArgumentError(
        fmt::format("got memory for {} outputs, the model has {}", outputs.size(), graph.outputs().size()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorDesc& expected = plan_->outputs()[i].desc;
    const TensorView& given = outputs[i];
    if (!given.present() || !(given.desc == expected)) {
      throw ArgumentError(fmt::format("output '{}' must be {} {}, got {} {}", names[i], expected.str(),
                                      layout_name(expected.layout), given.desc.str(),
                                      given.present() ? layout_name(given.desc.layout) : "without data"));
    }
    const std::size_t bytes = expected.bytes();
    if (is_own(given.data, bytes))
      throw ArgumentError(fmt::format(
          "output '{}' is to be written into the memory of this session: give memory of your own", names[i]));
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (bytes_overlap(given.data, bytes, inputs[j].data, inputs[j].desc.bytes()))
        throw ArgumentError(fmt::format(
            "the memory of output '{}' overlaps that of input '{}', which is read while it is written",
            names[i], graph.value(graph.inputs()[j]).name));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (bytes_overlap(given.data, bytes, outputs[j].data, outputs[j].desc.bytes()))
        throw ArgumentError(
            fmt::format("the memory of output '{}' overlaps that of output '{}'", names[i], names[j]));
    }
  }
}

bool Session::is_own(const std::byte* data, std::size_t bytes) const {
  return bytes_overlap(data, bytes, arena_.data(), arena_.bytes());
}

void Session::place_output(std::size_t i, std::byte* wanted) {
  OutputPlace& place = places_[i];
  if (place.now == wanted) return;
  for (const OutputUse& use : place.uses) {
    BoundStep& step = bound_[use.step];
    if (use.written) {
      step.outputs[use.operand].data = wanted + use.offset;
    } else {
      step.inputs[use.operand].data = wanted + use.offset;
    }
  }
  place.now = wanted;
}

// `outputs` are where micro-batches are gathered; empty: in the arena.
void Session::compute(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
  if (observer_ != nullptr) observer_->before_run();
  const MicroBatches& batches = plan_->micro_batches();
  for (std::int64_t b = 0; b < batches.count(); ++b) {
    run_steps(inputs, batches.first(b));
    if (batches.cut()) gather_outputs(outputs, batches.first(b));
  }
  if (observer_ != nullptr) observer_->after_run();
}

void Session::run_steps(std::span<const ConstTensorView> inputs, std::int64_t first_sample) {
  const Graph& graph = plan_->graph();
  const MicroBatches& batches = plan_->micro_batches();
  for (BoundStep& bound : bound_) {
    for (const auto& [operand, input] : bound.from_user) {
      const ConstTensorView& whole = inputs[static_cast<std::size_t>(input)];
      bound.inputs[operand].data = whole.data + sample_offset(whole.desc, batches, first_sample);
    }
    if (observer_ != nullptr) observer_->before_step(*bound.step);
    try {
      bound.step->kernel->run(bound.inputs, bound.outputs,
                              RunContext{*pool_, bound.scratch, nullptr, bound.state.data()});
    } catch (const Error& e) {
      const Node& node = graph.nodes()[static_cast<std::size_t>(bound.step->node)];
      fail("node '{}' ({}): {}", node.name, node.layer->type(), e.what());
    }
    if (observer_ != nullptr) observer_->after_step(*bound.step, bound.inputs, bound.outputs);
  }
}

// Copies a micro-batch's outputs to their places in the whole ones.
void Session::gather_outputs(std::span<const TensorView> outputs, std::int64_t first_sample) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Placement& whole = plan_->outputs()[i];
    const Placement& part = plan_->step_outputs()[i];
    if (whole.kind != Placement::Kind::arena) continue;
    const std::size_t offset = sample_offset(whole.desc, plan_->micro_batches(), first_sample);
    std::byte* const to = outputs.empty() ? arena_.data() + whole.offset : outputs[i].data;
    std::memcpy(to + offset, arena_.data() + part.offset, part.desc.bytes());
  }
}

void Session::make_slots(int count, bool timed) {
  if (count < 1) fail("a session needs at least 1 slot, not {}", count);
  for (std::size_t s = 0; s < slot_states_.size(); ++s) {
    if (slot_states_[s] != SlotState::idle)
      fail("slot {} is in flight: collect it before new slots are made", s);
  }
  slot_states_.clear();
  slot_inputs_.clear();
  slot_views_.clear();
  if (device_) {
    device_->make_slots(count, timed);
  } else {
    const Graph& graph = plan_->graph();
    for (int s = 0; s < count; ++s) {
      std::vector<Tensor>& inputs = slot_inputs_.emplace_back();
      std::vector<ConstTensorView>& views = slot_views_.emplace_back();
      for (const ValueId id : graph.inputs())
        views.push_back(inputs.emplace_back(graph.value(id).desc).view());
    }
  }
  slot_states_.assign(static_cast<std::size_t>(count), SlotState::idle);
  slots_are_timed_ = timed;
}

void Session::check_slot(int slot) const {
  if (slot < 0 || slot >= slots()) fail("there is no slot {}: the session has {}", slot, slots());
}

TensorView Session::slot_input(int slot, int input) {
  check_slot(slot);
  const std::size_t count = plan_->graph().inputs().size();
  if (input < 0 || static_cast<std::size_t>(input) >= count)
    throw ArgumentError(fmt::format("there is no input {}: the model has {}", input, count));
  if (device_) return device_->slot_input(slot, input);
  return slot_inputs_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(input)].view();
}

void Session::submit(int slot) {
  check_slot(slot);
  SlotState& state = slot_states_[static_cast<std::size_t>(slot)];
  if (state != SlotState::idle) fail("slot {} is in flight: collect it before it is submitted again", slot);
  if (device_) device_->submit(slot);
  state = SlotState::submitted;
}

SlotRun Session::collect(int slot) {
  check_slot(slot);
  SlotState& state = slot_states_[static_cast<std::size_t>(slot)];
  if (state != SlotState::submitted) fail("slot {} was not submitted", slot);
  state = SlotState::idle;
  if (device_) return device_->collect(slot);
  const auto begin = Clock::now();
  SlotRun result{run(slot_views_[static_cast<std::size_t>(slot)])};
  if (slots_are_timed_) result.kernel_ms = milliseconds_since(begin);
  return result;
}

}  // namespace pipit::internal
