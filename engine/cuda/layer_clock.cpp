// The GPU's LayerClock.
#include "engine/runtime/layer_clock.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"

namespace pipit::internal {

namespace {

using cuda::DeviceBuffer;
using cuda::Event;

constexpr std::size_t kMaxInputs = std::size_t{1} << 30;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMaxRuns = 20;  // of a replay
constexpr std::size_t kMinRuns = 3;
constexpr double kReplayMs = 0.2;  // so long a replay takes at least where kMaxRuns allows it

std::size_t aligned(std::size_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

// Slices of one buffer: as many as are wanted and the limit allows, at least one.
struct Slices {
  std::shared_ptr<const DeviceBuffer> buffer;
  std::size_t step = 0, count = 0;

  std::byte* at(std::size_t i) const { return buffer->data() + i % count * step; }
};

// What layers on one GPU share.
struct ClockState {
  explicit ClockState(int number) : gpu((select_gpu(number), number)), pool(1) {
    const std::size_t share = gpu_memory(gpu) / 16;
    most_inputs = std::min(kMaxInputs, share);
    int cache = 0;
    PIPIT_CUDA(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, gpu));
    overwritten = DeviceBuffer(2 * static_cast<std::size_t>(cache));
  }

  // Copies of x, made for the first layer that reads it.
  Slices inputs_of(const std::shared_ptr<const Tensor>& x) {
    std::erase_if(inputs, [](const auto& known) { return known.second.x.expired(); });
    Input& known = inputs[x.get()];
    if (known.slices.count != 0) return known.slices;
    const std::size_t bytes = x->desc().bytes();
    Slices slices;
    slices.step = aligned(bytes);
    slices.count = std::clamp<std::size_t>(most_inputs / slices.step, 1, kMaxRuns);
    slices.buffer = std::make_shared<const DeviceBuffer>(slices.step * slices.count);
    PIPIT_CUDA(cudaMemcpy(slices.at(0), x->view().data, bytes, cudaMemcpyHostToDevice));
    for (std::size_t i = 1; i < slices.count; ++i)
      PIPIT_CUDA(cudaMemcpy(slices.at(i), slices.at(0), bytes, cudaMemcpyDeviceToDevice));
    PIPIT_CUDA(cudaStreamSynchronize(nullptr));  // no Stream waits for the default one
    known = {x, slices};
    return slices;
  }

  // Memory for outputs, and for what kernels overwrite: each kernel may overwrite what the others left there.
  Slices results_of(std::size_t bytes) {
    Slices slices;
    slices.step = aligned(bytes);
    slices.count = std::clamp<std::size_t>(2 * most_inputs / slices.step, 1, kMaxRuns);
    if (!results || results->bytes() < slices.step * slices.count) {
      results.reset();
      results = std::make_shared<const DeviceBuffer>(slices.step * slices.count);
    }
    slices.buffer = results;
    return slices;
  }

  int gpu;
  ThreadPool pool;
  cuda::Stream stream;
  Event begin, end;
  std::size_t most_inputs = 0;
  DeviceBuffer overwritten;
  struct Input {
    std::weak_ptr<const Tensor> x;
    Slices slices;
  };
  std::map<const Tensor*, Input> inputs;
  std::shared_ptr<const DeviceBuffer> results;
  std::optional<cuda::PinnedBuffer> staging;
  std::size_t staging_bytes = 0;
};

// Launches one run on copy i of the operands, without waiting for it.
using Launch = std::function<void(std::size_t i)>;

class CudaClockedLayer final : public ClockedLayer {
 public:
  // `output`: in copy 0.
  CudaClockedLayer(std::shared_ptr<ClockState> state, Launch launch, const std::byte* output)
      : state_(std::move(state)), launch_(std::move(launch)), output_(output) {
    // Not captured: libraries initialize themselves on first use, which a capture forbids. The first run also loads the
    // kernel's code.
    launch_(0);
    estimate_ms_ = elapsed([&] { launch_(0); });
    const double runs = std::ceil(kReplayMs / std::max(estimate_ms_, 1e-6));
    runs_ = static_cast<std::size_t>(
        std::clamp(runs, static_cast<double>(kMinRuns), static_cast<double>(kMaxRuns)));
  }
  ~CudaClockedLayer() override { (void)cudaStreamSynchronize(state_->stream); }
  CudaClockedLayer(const CudaClockedLayer&) = delete;
  CudaClockedLayer& operator=(const CudaClockedLayer&) = delete;

  double run_ms(OperandPlace place) override {
    PIPIT_CUDA(cudaSetDevice(state_->gpu));
    const bool cached = place == OperandPlace::cache;
    cuda::Graph& graph = cached ? cached_ : rotating_;
    const bool is_new = !graph;
    if (is_new) {
      // A library's handle may have been on another stream meanwhile, and cannot change it in a capture.
      launch_(0);
      graph = cuda::Graph(state_->stream, [&] {
        for (std::size_t r = 0; r < runs_; ++r) launch_(cached ? 0 : r);
      });
    }
    // The first launch of a graph also uploads it; what runs before the first event keeps the GPU busy until the host
    // has queued the rest.
    if (is_new || cached) graph.launch(state_->stream);
    if (!cached)
      PIPIT_CUDA(cudaMemsetAsync(state_->overwritten.data(), 0, state_->overwritten.bytes(), state_->stream));
    return elapsed([&] { graph.launch(state_->stream); }) / static_cast<double>(runs_);
  }

  double estimate_ms() const override { return estimate_ms_; }

  void read(std::span<const Part> parts) override {
    PIPIT_CUDA(cudaSetDevice(state_->gpu));
    std::size_t bytes = 0;
    for (const Part& part : parts) bytes += part.to.size();
    if (!state_->staging || state_->staging_bytes < bytes) {
      state_->staging.reset();
      state_->staging.emplace(bytes);
      state_->staging_bytes = bytes;
    }
    launch_(0);
    std::byte* to = state_->staging->data();
    for (const Part& part : parts) {
      PIPIT_CUDA(
          cudaMemcpyAsync(to, output_ + part.first, part.to.size(), cudaMemcpyDeviceToHost, state_->stream));
      to += part.to.size();
    }
    state_->stream.synchronize();
    const std::byte* from = state_->staging->data();
    for (const Part& part : parts) {
      std::memcpy(part.to.data(), from, part.to.size());
      from += part.to.size();
    }
  }

 private:
  template <typename Body>
  double elapsed(Body&& body) {
    state_->begin.record(state_->stream);
    body();
    state_->end.record(state_->stream);
    state_->stream.synchronize();
    return state_->end.since(state_->begin);
  }

  std::shared_ptr<ClockState> state_;
  Launch launch_;
  const std::byte* output_;
  double estimate_ms_ = 0;
  std::size_t runs_ = kMinRuns;
  cuda::Graph rotating_, cached_;
};

// The steps of a plan, on every copy of input and arena.
class PlanLaunch {
 public:
  PlanLaunch(std::shared_ptr<ClockState> state, std::shared_ptr<const ExecutionPlan> plan, Slices x)
      : state_(std::move(state)),
        plan_(std::move(plan)),
        x_(std::move(x)),
        arena_(state_->results_of(plan_->arena_bytes())) {
    if (plan_->graph().inputs().size() != 1 || plan_->outputs().size() != 1)
      fail("{} inputs and {} outputs; a layer that is timed by itself has one of each",
           plan_->graph().inputs().size(), plan_->outputs().size());
    for (const Step& step : plan_->steps()) {
      if (step.on_host) fail_unsupported("{}: the GPU does not run it", step.kernel_name);
      kept_.push_back(cuda::zeroed_buffer(step.kernel->state_bytes()));
    }
    for (std::size_t copy = 0; copy < std::max(x_.count, arena_.count); ++copy) bind(copy);
  }

  void operator()(std::size_t i) const {
    for (const Bound& b : copies_[i % copies_.size()]) {
      b.step->kernel->run(b.inputs, b.outputs,
                          RunContext{state_->pool, b.scratch, static_cast<cudaStream_t>(state_->stream),
                                     kept_[static_cast<std::size_t>(b.step->index)].data()});
    }
  }
  const std::byte* output() { return at(plan_->outputs()[0], 0); }

 private:
  struct Bound {
    const Step* step;
    std::vector<ConstTensorView> inputs;
    std::vector<TensorView> outputs;
    std::byte* scratch;
  };

  void bind(std::size_t copy) {
    std::vector<Bound>& steps = copies_.emplace_back();
    for (const Step& step : plan_->steps()) {
      Bound& bound = steps.emplace_back(Bound{&step, {}, {}, arena_.at(copy) + step.scratch_offset});
      for (const Placement& p : step.inputs) bound.inputs.push_back({p.desc, at(p, copy)});
      for (const Placement& p : step.outputs) bound.outputs.push_back({p.desc, at(p, copy)});
    }
  }
  std::byte* at(const Placement& p, std::size_t copy) {
    switch (p.kind) {
      case Placement::Kind::arena:
        return arena_.at(copy) + p.offset;
      case Placement::Kind::input:
        return x_.at(copy);
      case Placement::Kind::constant:
        if (!p.constant) return nullptr;
        return constants_.try_emplace(p.constant.get(), p.constant->view().data, p.constant->desc().bytes())
            .first->second.data();
      case Placement::Kind::absent:
        break;
    }
    return nullptr;
  }

  std::shared_ptr<ClockState> state_;
  std::shared_ptr<const ExecutionPlan> plan_;
  Slices x_, arena_;
  std::map<const Tensor*, DeviceBuffer> constants_;
  std::vector<DeviceBuffer> kept_;  // the state of each step: runs follow each other, on whichever copy
  std::vector<std::vector<Bound>> copies_;
};

class CudaLayerClock final : public LayerClock {
 public:
  explicit CudaLayerClock(int gpu) : state_(std::make_shared<ClockState>(gpu)) {}

  std::unique_ptr<ClockedLayer> clocked(std::shared_ptr<const ExecutionPlan> plan,
                                        const std::shared_ptr<const Tensor>& x) override {
    PIPIT_CUDA(cudaSetDevice(state_->gpu));
    const auto launch = std::make_shared<PlanLaunch>(state_, std::move(plan), state_->inputs_of(x));
    return std::make_unique<CudaClockedLayer>(
        state_, [launch](std::size_t i) { (*launch)(i); }, launch->output());
  }

  std::unique_ptr<ClockedLayer> clocked(std::shared_ptr<const Kernel> kernel,
                                        const std::shared_ptr<const Tensor>& x,
                                        const TensorDesc& y) override {
    PIPIT_CUDA(cudaSetDevice(state_->gpu));
    const Slices inputs = state_->inputs_of(x);
    const std::size_t of_y = aligned(y.bytes());
    const Slices results = state_->results_of(of_y + kernel->scratch_bytes());
    const TensorDesc x_desc = x->desc();
    const auto kept = std::make_shared<const DeviceBuffer>(cuda::zeroed_buffer(kernel->state_bytes()));
    const auto launch = [state = state_, kernel = std::move(kernel), kept, inputs, results, of_y, x_desc,
                         y](std::size_t i) {
      const ConstTensorView read{x_desc, inputs.at(i)};
      const TensorView written{y, results.at(i)};
      kernel->run({&read, 1}, {&written, 1},
                  RunContext{state->pool, results.at(i) + of_y, static_cast<cudaStream_t>(state->stream),
                             kept->data()});
    };
    return std::make_unique<CudaClockedLayer>(state_, launch, results.at(0));
  }

 private:
  std::shared_ptr<ClockState> state_;
};

}  // namespace

std::unique_ptr<LayerClock> make_cuda_layer_clock(int gpu) {
  return std::make_unique<CudaLayerClock>(gpu);
}

}  // namespace pipit::internal
