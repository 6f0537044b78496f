// The GPU's KernelTimer.
#include <utility>

#include "engine/cuda/runtime.h"
#include "engine/plan/tuner.h"
#include "engine/platform/device.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::Event;

class CudaTimer final : public KernelTimer {
 public:
  explicit CudaTimer(int gpu) : gpu_((select_gpu(gpu), gpu)), pool_(1) {}

  void load(const NodeSpec& spec) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    inputs_.clear();
    outputs_.clear();
    owned_.clear();
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      if (!spec.has_input(i)) {
        inputs_.emplace_back();
        continue;
      }
      const TensorDesc& desc = *spec.inputs[i];
      if (const Tensor* constant = spec.constant(i)) {
        owned_.emplace_back(constant->view().data, desc.bytes());
      } else {
        const Tensor values(desc);
        fill_operand({desc, const_cast<std::byte*>(values.view().data)});
        owned_.emplace_back(values.view().data, desc.bytes());
      }
      inputs_.push_back({desc, owned_.back().data()});
    }
    for (const TensorDesc& desc : spec.outputs)
      outputs_.push_back({desc, owned_.emplace_back(desc.bytes()).data()});
    // The uploads went through the default stream, which this timer's does not wait for.
    PIPIT_CUDA(cudaDeviceSynchronize());
  }

  // Not captured: libraries initialize themselves on first use, which a capture forbids. The second run counts: the
  // first loads the kernel's code, which can take longer than any run.
  double warm_up(const Kernel& kernel) override {
    PIPIT_CUDA(cudaSetDevice(gpu_));
    if (scratch_.bytes() < kernel.scratch_bytes()) {
      scratch_ = DeviceBuffer();  // before the larger one is asked for
      scratch_ = DeviceBuffer(kernel.scratch_bytes());
    }
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

  double replay(const Kernel& kernel, int runs) {
    const cuda::Graph graph(stream_, [&] {
      for (int r = 0; r < runs; ++r) launch(kernel);
    });
    graph.launch(stream_);  // the first launch of a graph also uploads it
    return elapsed([&] { graph.launch(stream_); }) / runs;
  }

  void launch(const Kernel& kernel) {
    kernel.run(inputs_, outputs_, RunContext{pool_, scratch_.data(), static_cast<cudaStream_t>(stream_)});
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
  std::vector<DeviceBuffer> owned_;
  std::vector<ConstTensorView> inputs_;
  std::vector<TensorView> outputs_;
};

}  // namespace

std::unique_ptr<KernelTimer> make_cuda_timer(int gpu) {
  return std::make_unique<CudaTimer>(gpu);
}

}  // namespace pipit
