// A session on a GPU: a stream that computes and one that uploads, one arena, one captured graph.
//
// The captured graphs of run() and of every slot contain the copies, too: a driver serves one thread of a process at a
// time, so sessions in several threads wait for each other's calls. Only uploads of slots stay outside, where they run
// beside the kernels of earlier runs; for this a slot has its own inputs on the GPU.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/cuda/host_step.h"
#include "engine/cuda/runtime.h"
#include "engine/plan/memory_planner.h"
#include "engine/platform/device.h"
#include "engine/runtime/output_uses.h"
#include "engine/runtime/session.h"

namespace pipit::internal {

namespace {

using cuda::DeviceBuffer;
using cuda::Event;
using cuda::PinnedBuffer;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

constexpr double kMaxPartsMs = 3000;  // of a profile, for what single steps take
constexpr int kMinPartRuns = 5;
constexpr std::size_t kMaxReplays = 8;  // captured graphs for memory of the caller's

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kArenaAlignment == 0;
}

class CudaSession final : public DeviceSession {
 public:
  explicit CudaSession(std::shared_ptr<const ExecutionPlan> plan)
      : plan_(std::move(plan)),
        gpu_((select_gpu(plan_->options().gpu), plan_->options().gpu)),
        pool_(1),
        arena_(plan_->arena_bytes()),
        faults_(plan_->steps().size() * sizeof(Fault)) {
    std::memset(faults_.data(), 0, plan_->steps().size() * sizeof(Fault));
    const Graph& graph = plan_->graph();
    for (const ValueId id : graph.inputs()) {
      const std::size_t bytes = graph.value(id).desc.bytes();
      device_inputs_.emplace_back(bytes);
      host_inputs_.emplace_back(bytes);
    }
    for (const Step& step : plan_->steps()) {
      Fault* fault = reinterpret_cast<Fault*>(faults_.data()) + bound_.size();
      Bound bound{&step, {}, {}, arena_.data() + step.scratch_offset, {}, fault, nullptr};
      for (const Placement& p : step.inputs) {
        const bool stays =
            step.on_host && p.kind == Placement::Kind::constant;  // the CPU kernel reads the original
        bound.inputs.push_back({p.desc, stays ? nullptr : at(p)});
      }
      for (const Placement& p : step.outputs) bound.outputs.push_back({p.desc, at(p)});
      if (step.on_host) {
        if (!host_pool_) host_pool_ = std::make_unique<ThreadPool>(plan_->options().threads);
        bound.host = std::make_unique<cuda::HostStep>(step, *host_pool_);
      } else {
        bound.state = cuda::zeroed_buffer(step.kernel->state_bytes());
      }
      bound_.push_back(std::move(bound));
    }
    for (const Placement& p : plan_->outputs()) {
      host_outputs_.emplace_back(p.desc.bytes());
      device_outputs_.push_back(at(p));
      outputs_.push_back({p.desc, host_outputs_.back().data()});
    }
    output_uses_ = find_output_uses(*plan_);
  }

  // Nothing may be freed under a copy or a kernel that still runs, as after an error between submit and collect.
  ~CudaSession() override {
    (void)cudaStreamSynchronize(uploads_);
    (void)cudaStreamSynchronize(stream_);
    (void)cudaEventSynchronize(elsewhere_);
  }
  CudaSession(const CudaSession&) = delete;
  CudaSession& operator=(const CudaSession&) = delete;

  std::span<const ConstTensorView> run(std::span<const ConstTensorView> inputs) override {
    enter();
    fill(inputs);
    launch(whole_, [&] {
      upload(host_inputs_, device_inputs_, stream_);
      run_steps(bound_.size());
      download(host_outputs_);
    });
    stream_.synchronize();
    check_steps();
    return outputs_;
  }

  void run_on_device(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
                     void* stream) override {
    const cuda::CurrentGpu current(gpu_);
    const auto user = static_cast<cudaStream_t>(stream);
    if (elsewhere_.happened()) check_steps();  // of earlier runs; not while one may be writing
    Replay& replay = replay_of(inputs, outputs);
    const bool known = std::exchange(replay.known, true);
    if (warm_ && !replay.graph) {
      if (known) {
        replay.graph = cuda::Graph(stream_, [&] { run_steps_in(inputs, outputs); });
      } else if (!graph_) {
        capture();
      }
    }
    // After what the session does in its own stream, and in the one of the run before.
    own_.record(stream_);
    cuda::Stream::wait(user, own_);
    cuda::Stream::wait(user, elsewhere_);
    if (replay.graph) {
      replay.graph.launch(user);
    } else if (warm_) {
      // Addresses that may not come again: copies take a hundredth of what another graph would.
      for (std::size_t i = 0; i < inputs.size(); ++i)
        copy_on_device(device_inputs_[i].data(), inputs[i].data, inputs[i].desc.bytes(), user);
      graph_.launch(user);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        copy_on_device(outputs[i].data, device_outputs_[i], outputs[i].desc.bytes(), user);
    } else {
      // As launch() does; in the session's own stream, which libraries may keep.
      own_.record(user);
      stream_.wait(own_);
      run_steps_in(inputs, outputs);
      warm_ = true;
      own_.record(stream_);
      cuda::Stream::wait(user, own_);
    }
    elsewhere_.record(user);
    is_elsewhere_ = true;
  }

  std::span<const ConstTensorView> run_observed(std::span<const ConstTensorView> inputs,
                                                RunObserver& observer) override {
    enter();
    fill(inputs);
    upload(host_inputs_, device_inputs_, stream_);
    observer.before_run();
    for (const Bound& b : bound_) {
      observer.before_step(*b.step);
      run_step(b);
      // At once: a later step may write over them.
      std::vector<HostBuffer> copies;
      std::vector<TensorView> outputs;
      for (const TensorView& output : b.outputs) {
        const std::size_t bytes = output.desc.bytes();
        copies.emplace_back(bytes);
        outputs.push_back({output.desc, copies.back().data()});
        PIPIT_CUDA(cudaMemcpyAsync(outputs.back().data, output.data, bytes, cudaMemcpyDeviceToHost, stream_));
      }
      stream_.synchronize();
      check_steps();
      observer.after_step(*b.step, {}, outputs);
    }
    warm_ = true;
    observer.after_run();
    download(host_outputs_);
    stream_.synchronize();
    return outputs_;
  }

  void make_slots(int count, bool timed) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    slots_are_timed_ = timed;
    slots_.clear();
    in_flight_.clear();
    const Graph& graph = plan_->graph();
    for (int s = 0; s < count; ++s) {
      Slot& slot = slots_.emplace_back();
      for (const ValueId id : graph.inputs()) {
        const TensorDesc& desc = graph.value(id).desc;
        slot.inputs.emplace_back(desc.bytes());
        slot.uploaded.push_back({desc, slot.device_inputs.emplace_back(desc.bytes()).data()});
      }
      for (const ConstTensorView& output : outputs_) {
        slot.outputs.emplace_back(output.desc.bytes());
        slot.views.push_back({output.desc, slot.outputs.back().data()});
      }
    }
  }

  TensorView slot_input(int slot, int input) override {
    const Graph& graph = plan_->graph();
    const auto i = static_cast<std::size_t>(input);
    return {graph.value(graph.inputs()[i]).desc, slots_[static_cast<std::size_t>(slot)].inputs[i].data()};
  }

  void submit(int index) override {
    const std::lock_guard lock(in_flight_mutex_);
    enter();
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    upload(slot.inputs, slot.device_inputs, uploads_);
    slot.has_inputs.record(uploads_);
    stream_.wait(slot.has_inputs);
    const auto mark = [this, captured = warm_](const Event& event) {
      if (slots_are_timed_) captured ? event.record_in_graph(stream_) : event.record(stream_);
    };
    launch(slot.graph, [&] {
      mark(slot.begin);
      run_steps_in(slot.uploaded, {});
      mark(slot.end);
      for (std::size_t i = 0; i < slot.outputs.size(); ++i)
        download(slot.outputs[i], output_of(i, slot.uploaded), slot.views[i].desc.bytes());
    });
    slot.done.record(stream_);
    in_flight_.push_back(index);
  }

  // May run at once with submit() of another slot.
  SlotRun collect(int index) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    slot.done.synchronize();
    const double kernel_ms = slots_are_timed_ ? slot.end.since(slot.begin) : 0;
    const bool faulty = error_of_steps() != nullptr;
    std::exception_ptr error;
    {
      const std::lock_guard lock(in_flight_mutex_);
      if (faulty) repeat_in_flight();
      std::erase(in_flight_, index);
      error = std::exchange(slot.error, nullptr);
    }
    if (error) std::rethrow_exception(error);
    return {slot.views, kernel_ms};
  }

  Profile profile(std::span<const ConstTensorView> inputs, int warmup, int runs,
                  const std::function<void(int)>& progress) override {
    enter();
    for (int r = 0; r < warmup; ++r) {
      run(inputs);
      progress(r + 1);
    }
    while (!whole_) run(inputs);  // so that no timed run is the one that is captured
    Profile result;
    result.runs = runs;
    std::vector<std::vector<double>> step_ms(bound_.size()), event_ms(bound_.size());
    std::vector<double> layers, sums, graphs, totals;
    std::vector<Event> marks(bound_.size() + 1);
    const std::vector<cuda::Graph> parts = first_steps();
    double parts_ms = 0;
    for (int r = 0; r < runs; ++r) {
      fill(inputs);
      upload(host_inputs_, device_inputs_, stream_);
      run_steps(bound_.size(), &marks);
      stream_.synchronize();
      check_steps();
      double sum = 0;
      for (std::size_t s = 0; s < bound_.size(); ++s) {
        event_ms[s].push_back(marks[s + 1].since(marks[s]));
        sum += event_ms[s].back();
      }
      sums.push_back(sum);
      if (!graph_) capture();
      marks.front().record(stream_);
      graph_.launch(stream_);
      marks.back().record(stream_);
      stream_.synchronize();
      graphs.push_back(marks.back().since(marks.front()));
      if (!parts.empty() && (r < kMinPartRuns || parts_ms < kMaxPartsMs)) {
        const std::vector<double> times = times_of(parts, marks);
        for (std::size_t s = 0; s < times.size(); ++s)
          step_ms[s].push_back(std::max(times[s] - (s > 0 ? times[s - 1] : 0), 0.0));
        layers.push_back(times.back());
        parts_ms += std::accumulate(times.begin(), times.end(), 0.0);
      }
      const auto begin = Clock::now();
      run(inputs);
      totals.push_back(milliseconds_since(begin));
      progress(warmup + r + 1);
    }
    for (std::size_t s = 0; s < bound_.size(); ++s)
      result.steps.push_back({static_cast<int>(s), median(step_ms[s]), step_ms[s]});
    result.layers_ms = layers.empty() ? 0 : median(layers);
    result.graph_ms = median(graphs);
    result.end_to_end_ms = median(totals);
    result.residual_ms = result.graph_ms - result.layers_ms;
    result.run_ms = std::move(totals);
    // A step begins where the one before ends: its events mark both.
    const std::size_t usual = nearest_run(sums, median(sums));
    result.trace = {static_cast<int>(usual), sums[usual], {}};
    double begin_ms = 0;
    for (std::size_t s = 0; s < bound_.size(); ++s) {
      result.trace.calls.push_back({static_cast<int>(s), begin_ms, event_ms[s][usual]});
      begin_ms += event_ms[s][usual];
    }
    return result;
  }

  std::vector<double> repeat_ms(int runs) override {
    enter();
    std::vector<Event> marks(static_cast<std::size_t>(runs) + 1);
    launch();  // captures the graph if need be, and keeps the stream busy until the others are queued
    marks[0].record(stream_);
    for (std::size_t r = 1; r < marks.size(); ++r) {
      launch();
      marks[r].record(stream_);
    }
    stream_.synchronize();
    check_steps();
    std::vector<double> times;
    for (std::size_t r = 1; r < marks.size(); ++r) times.push_back(marks[r].since(marks[r - 1]));
    return times;
  }

 private:
  struct Bound {
    const Step* step;
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    std::byte* scratch;
    DeviceBuffer state;
    Fault* fault;
    std::unique_ptr<cuda::HostStep> host;  // runs the step where the GPU does not
  };
  struct Slot {
    std::vector<PinnedBuffer> inputs;
    std::vector<DeviceBuffer> device_inputs;
    std::vector<ConstTensorView> uploaded;  // of device_inputs
    std::vector<PinnedBuffer> outputs;
    std::vector<ConstTensorView> views;  // of outputs
    cuda::Graph graph;
    Event has_inputs;  // on the GPU
    Event begin;       // around the kernels, where slots are timed
    Event end;
    Event done{true};          // after the download
    std::exception_ptr error;  // of its run, where that is known before it is collected
  };

  // A run in memory of the caller's, captured when the memory is used for the second time.
  struct Replay {
    std::vector<const std::byte*> inputs;
    std::vector<const std::byte*> outputs;
    bool known = false;  // an earlier run had it, too
    cuda::Graph graph;
  };

  // Before anything that uses the arena in the session's own stream: runs in others come first.
  void enter() {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    if (std::exchange(is_elsewhere_, false)) stream_.wait(elsewhere_);
  }

  static bool same(const std::vector<const std::byte*>& places, const auto& views) {
    return std::ranges::equal(places, views, {}, {}, [](const auto& view) { return view.data; });
  }

  // The one with this memory; else the one that was made first is forgotten where there are many.
  Replay& replay_of(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
    for (Replay& replay : replays_) {
      if (same(replay.inputs, inputs) && same(replay.outputs, outputs)) return replay;
    }
    const Graph& graph = plan_->graph();
    Replay made;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_memory(inputs[i].data, inputs[i].desc, "input", graph.value(graph.inputs()[i]).name);
      made.inputs.push_back(inputs[i].data);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      check_memory(outputs[i].data, outputs[i].desc, "output", graph.output_names()[i]);
      made.outputs.push_back(outputs[i].data);
    }
    if (replays_.size() == kMaxReplays) replays_.erase(replays_.begin());
    return replays_.emplace_back(std::move(made));
  }

  void check_memory(const std::byte* data, const TensorDesc& desc, const char* what,
                    const std::string& name) const {
    if (desc.bytes() > 0 && !cuda::is_device_memory(data, gpu_))
      fail("{} '{}' does not lie in memory of GPU {}: give what cudaMalloc returned there", what, name, gpu_);
  }

  // All steps, in the session's own stream, on memory of the caller's instead of its own.
  void run_steps_in(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
    bind(inputs, outputs);
    try {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!is_aligned(inputs[i].data))
          copy_on_device(device_inputs_[i].data(), inputs[i].data, inputs[i].desc.bytes(), stream_);
      }
      run_steps(bound_.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!is_written_in_place(i, outputs[i]))
          copy_on_device(outputs[i].data, output_of(i, inputs), outputs[i].desc.bytes(), stream_);
      }
    } catch (...) {
      bind({}, {});
      throw;
    }
    bind({}, {});
  }

  // Where the steps have left output `i`, if they ran on `inputs`.
  const std::byte* output_of(std::size_t i, std::span<const ConstTensorView> inputs) const {
    const Placement& p = plan_->outputs()[i];
    return p.kind == Placement::Kind::input ? inputs[static_cast<std::size_t>(p.input)].data
                                            : device_outputs_[i];
  }

  bool is_written_in_place(std::size_t output, const TensorView& view) const {
    return !output_uses_[output].empty() && is_aligned(view.data);
  }

  static void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
    if (bytes > 0) PIPIT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }

  // Points the steps to memory of the caller's; without any: back to the session's own.
  void bind(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs) {
    for (Bound& b : bound_) {
      for (std::size_t i = 0; i < b.step->inputs.size(); ++i) {
        const Placement& p = b.step->inputs[i];
        if (p.kind != Placement::Kind::input) continue;
        const auto input = static_cast<std::size_t>(p.input);
        const bool given = !inputs.empty() && is_aligned(inputs[input].data);
        b.inputs[i].data = given ? inputs[input].data : device_inputs_[input].data();
      }
    }
    for (std::size_t i = 0; i < output_uses_.size(); ++i) {
      const bool given = !outputs.empty() && is_written_in_place(i, outputs[i]);
      std::byte* const place = given ? outputs[i].data : device_outputs_[i];
      for (const OutputUse& use : output_uses_[i]) {
        Bound& b = bound_[use.step];
        if (use.written) {
          b.outputs[use.operand].data = place + use.offset;
        } else {
          b.inputs[use.operand].data = place + use.offset;
        }
      }
    }
  }

  std::byte* at(const Placement& p) {
    switch (p.kind) {
      case Placement::Kind::arena:
        return arena_.data() + p.offset;
      case Placement::Kind::input:
        return device_inputs_[static_cast<std::size_t>(p.input)].data();
      case Placement::Kind::constant:
        if (!p.constant) return nullptr;
        // One copy for all steps that read it.
        return constants_.try_emplace(p.constant.get(), p.constant->view().data, p.constant->desc().bytes())
            .first->second.data();
      case Placement::Kind::absent:
        break;
    }
    return nullptr;
  }

  void fill(std::span<const ConstTensorView> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      std::memcpy(host_inputs_[i].data(), inputs[i].data, inputs[i].desc.bytes());
  }

  static void upload(const std::vector<PinnedBuffer>& from, const std::vector<DeviceBuffer>& to,
                     cudaStream_t stream) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].bytes() > 0)
        PIPIT_CUDA(
            cudaMemcpyAsync(to[i].data(), from[i].data(), to[i].bytes(), cudaMemcpyHostToDevice, stream));
    }
  }

  void download(const std::vector<PinnedBuffer>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) download(to[i], device_outputs_[i], outputs_[i].desc.bytes());
  }
  void download(const PinnedBuffer& to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) PIPIT_CUDA(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyDeviceToHost, stream_));
  }

  void run_step(const Bound& b) {
    if (b.host) return b.host->enqueue(b.inputs, b.outputs, stream_);
    b.step->kernel->run(b.inputs, b.outputs,
                        RunContext{pool_, b.scratch, static_cast<cudaStream_t>(stream_), b.state.data(),
                                   b.step->settled, b.fault});
  }

  // The first `count` of them.
  void run_steps(std::size_t count, std::vector<Event>* marks = nullptr) {
    if (marks != nullptr) marks->front().record(stream_);
    for (std::size_t s = 0; s < count; ++s) {
      run_step(bound_[s]);
      if (marks != nullptr) (*marks)[s + 1].record(stream_);
    }
  }

  // Graphs of the first step, the first two, and so on. What a step adds to the graph that ends with it is its time in
  // the graph of all, where kernels overlap: events between kernels would prevent that and take time themselves.
  std::vector<cuda::Graph> first_steps() {
    std::vector<cuda::Graph> parts;
    for (std::size_t s = 1; s <= bound_.size(); ++s) parts.emplace_back(stream_, [&] { run_steps(s); });
    return parts;
  }

  // The longest goes first, twice, so that the host, which queues them all, stays ahead of the GPU; an interval of
  // nothing is taken off.
  std::vector<double> times_of(const std::vector<cuda::Graph>& parts, const std::vector<Event>& marks) {
    parts.back().launch(stream_);
    marks.back().record(stream_);
    for (std::size_t s = parts.size(); s-- > 0;) {
      parts[s].launch(stream_);
      marks[s].record(stream_);
    }
    const Event nothing;
    nothing.record(stream_);
    stream_.synchronize();
    check_steps();
    const double empty = nothing.since(marks[0]);
    std::vector<double> times;
    for (std::size_t s = 0; s < parts.size(); ++s) times.push_back(marks[s].since(marks[s + 1]) - empty);
    return times;
  }

  // After the runs to be judged have finished: results of a step that failed are not handed out.
  void check_steps() {
    if (const std::exception_ptr error = error_of_steps()) std::rethrow_exception(error);
  }

  // The error of the first step that has one, or null. Forgets those of all steps.
  std::exception_ptr error_of_steps() {
    std::exception_ptr first;
    for (const Bound& b : bound_) {
      try {
        check_step(b);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    return first;
  }

  void check_step(const Bound& b) {
    try {
      if (b.host) b.host->check();
      if (std::exchange(b.fault->found, 0) != 0) fail("{}", b.step->kernel->fault_text(b.fault->value));
    } catch (const Error& e) {
      const Node& node = plan_->graph().nodes()[static_cast<std::size_t>(b.step->node)];
      fail("node '{}' ({}, {}): {}", node.name, node.layer->type(), b.step->kernel_name, e.what());
    }
  }

  // A step has failed, and runs of several slots may have been through it meanwhile: each is made again alone, so that
  // the error reaches the run that it belongs to. Their inputs are still there.
  void repeat_in_flight() {
    uploads_.synchronize();
    stream_.synchronize();
    (void)error_of_steps();
    for (const int index : in_flight_) {
      Slot& slot = slots_[static_cast<std::size_t>(index)];
      if (slot.error) continue;
      upload(slot.inputs, device_inputs_, stream_);
      launch();
      download(slot.outputs);
      stream_.synchronize();
      slot.error = error_of_steps();
    }
  }

  void capture() {
    graph_ = cuda::Graph(stream_, [&] { run_steps(bound_.size()); });
  }

  // The first run goes step by step: libraries initialize themselves on first use, which a capture forbids.
  template <typename Body>
  void launch(cuda::Graph& graph, const Body& body) {
    if (!warm_) {
      body();
      warm_ = true;
      return;
    }
    if (!graph) graph = cuda::Graph(stream_, body);
    graph.launch(stream_);
  }

  // The steps alone.
  void launch() {
    launch(graph_, [&] { run_steps(bound_.size()); });
  }

  std::shared_ptr<const ExecutionPlan> plan_;
  int gpu_;
  ThreadPool pool_;
  std::unique_ptr<ThreadPool> host_pool_;  // for steps on the CPU; null where there are none
  cuda::Stream stream_;
  cuda::Stream uploads_;
  DeviceBuffer arena_;
  PinnedBuffer faults_;  // a Fault for each step
  std::vector<DeviceBuffer> device_inputs_;
  std::vector<PinnedBuffer> host_inputs_;
  std::map<const Tensor*, DeviceBuffer> constants_;
  std::vector<Bound> bound_;
  std::vector<std::byte*> device_outputs_;
  std::vector<PinnedBuffer> host_outputs_;
  std::vector<ConstTensorView> outputs_;
  cuda::Graph graph_;  // of the steps
  cuda::Graph whole_;  // of run()
  bool warm_ = false;
  std::vector<std::vector<OutputUse>> output_uses_;
  std::vector<Replay> replays_;
  Event own_;                  // what the session's stream has done, for a stream of the caller's
  Event elsewhere_;            // the latest run in a stream of the caller's
  bool is_elsewhere_ = false;  // and the session's stream has not waited for it yet
  bool slots_are_timed_ = false;
  std::vector<Slot> slots_;
  std::mutex in_flight_mutex_;  // of the slots that are submitted and not collected
  std::vector<int> in_flight_;  // in that order
};

}  // namespace

std::unique_ptr<DeviceSession> make_cuda_session(std::shared_ptr<const ExecutionPlan> plan) {
  return std::make_unique<CudaSession>(std::move(plan));
}

}  // namespace pipit::internal
