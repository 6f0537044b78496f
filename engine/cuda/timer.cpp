// The GPU's KernelTimer.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/tuner.h"
#include "engine/platform/device.h"

namespace pipit::internal {

namespace {

using cuda::DeviceBuffer;
using cuda::Event;

class CudaTimer final : public KernelTimer {
 public:
  explicit CudaTimer(int gpu) : gpu_((select_gpu(gpu), gpu)), pool_(1) {}

  // What has the desc of an input of the node before keeps its memory and its values: to make them up and to upload
  // them takes longer than to time some kernels.
  void load(const NodeSpec& spec) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    graphs_.clear();
    states_.clear();
    inputs_.clear();
    outputs_.clear();
    constants_.clear();
    std::vector<MadeUp> before = std::exchange(made_up_, {});
    std::erase_if(before, [&](const MadeUp& m) {
      return std::ranges::none_of(
          spec.inputs, [&](const TensorDesc* input) { return input != nullptr && *input == m.desc; });
    });
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!spec.has_input(i)) {
        inputs_.emplace_back();
        continue;
      }
      const TensorDesc& desc = *spec.inputs[i];
      const Tensor* constant = spec.constant(i);
      const DeviceBuffer& held = constant != nullptr
                                     ? constants_.emplace_back(constant->view().data, desc.bytes())
                                     : made_up(desc, before);
      inputs_.push_back({desc, held.data()});
    }
    before.clear();
    results_.resize(std::max(results_.size(), spec.outputs.size()));
    for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
      grow(results_[i], spec.outputs[i].bytes());
      outputs_.push_back({spec.outputs[i], results_[i].data()});
    }
    // The uploads went through the default stream, which this timer's does not wait for.
    PIPIT_CUDA(cudaDeviceSynchronize());
  }

  // Not captured: libraries initialize themselves on first use, which a capture forbids. The second run counts: the
  // first loads the kernel's code, which can take longer than any run.
  double warm_up(const Kernel& kernel) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    if (grow(scratch_, kernel.scratch_bytes())) graphs_.clear();
    // Graphs of another kernel that was at this address before.
    std::erase_if(graphs_, [&](const Replay& r) { return r.kernel == &kernel; });
    states_.insert_or_assign(&kernel, cuda::zeroed_buffer(kernel.state_bytes()));
    launch(kernel);
    return elapsed([&] { launch(kernel); });
  }

  double time(const Kernel& kernel, int runs) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    const double ms = replay(kernel, runs);
    return ms * runs < kResolutionMs && runs < kManyRuns ? replay(kernel, kManyRuns) : ms;
  }

 private:
  // A replay takes the host some microseconds to launch; in that of many runs they do not count.
  static constexpr double kResolutionMs = 0.1;
  static constexpr int kManyRuns = 20;

  struct MadeUp {
    TensorDesc desc;
    DeviceBuffer values;
  };
  struct Replay {
    const Kernel* kernel;
    int runs;
    cuda::Graph graph;
  };

  const DeviceBuffer& made_up(const TensorDesc& desc, std::vector<MadeUp>& before) {
    const auto same = std::ranges::find_if(
        before, [&](const MadeUp& m) { return m.values.data() != nullptr && m.desc == desc; });
    if (same != before.end()) return made_up_.emplace_back(MadeUp{desc, std::move(same->values)}).values;
    const Tensor values(desc);
    fill_operand({desc, const_cast<std::byte*>(values.view().data)});
    return made_up_.emplace_back(MadeUp{desc, DeviceBuffer(values.view().data, desc.bytes())}).values;
  }

  // Whether it had to be replaced by a larger one.
  static bool grow(DeviceBuffer& buffer, std::size_t bytes) {
    if (buffer.bytes() >= bytes) return false;
    buffer = DeviceBuffer();  // before the larger one is asked for
    buffer = DeviceBuffer(bytes);
    return true;
  }

  // Kernels are timed in turns, and to capture a graph takes longer than to run it: a graph of at least `runs` runs,
  // and not more than twice as many, is used again.
  double replay(const Kernel& kernel, int runs) {
    auto found = std::ranges::find_if(graphs_, [&](const Replay& r) {
      return r.kernel == &kernel && r.runs >= runs && r.runs <= 2 * runs;
    });
    if (found == graphs_.end()) {
      graphs_.push_back({&kernel, runs, cuda::Graph(stream_, [&] {
                           for (int r = 0; r < runs; ++r) launch(kernel);
                         })});
      found = graphs_.end() - 1;
      found->graph.launch(stream_);  // the first launch of a graph also uploads it
    }
    return elapsed([&] { found->graph.launch(stream_); }) / found->runs;
  }

  void launch(const Kernel& kernel) {
    kernel.run(
        inputs_, outputs_,
        RunContext{pool_, scratch_.data(), static_cast<cudaStream_t>(stream_), states_.at(&kernel).data()});
  }

  template <typename Body>
  double elapsed(Body&& body) {
    begin_.record(stream_);
    body();
    end_.record(stream_);
    stream_.synchronize();
    return end_.since(begin_);
  }

  int gpu_;
  ThreadPool pool_;
  cuda::Stream stream_;
  Event begin_;
  Event end_;
  DeviceBuffer scratch_;
  std::map<const Kernel*, DeviceBuffer> states_;  // of kernels that were warmed up
  std::vector<DeviceBuffer> constants_;
  std::vector<MadeUp> made_up_;        // of inputs that are no constants
  std::vector<DeviceBuffer> results_;  // at least as large as the outputs
  std::vector<Replay> graphs_;
  std::vector<ConstTensorView> inputs_;
  std::vector<TensorView> outputs_;
};

}  // namespace

std::unique_ptr<KernelTimer> make_cuda_timer(int gpu) {
  return std::make_unique<CudaTimer>(gpu);
}

}  // namespace pipit::internal
