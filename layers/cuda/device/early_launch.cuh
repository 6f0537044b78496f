// Kernels with one thread per point that may begin while the kernel before still runs (launch.cuh).
#pragma once

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::cuda {

/// launch() of kernel.cuh, overlapping where can_overlap() says so.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), std::int64_t points, bool overlap, const RunContext& context,
                  const Arguments&... arguments) {
  if (points == 0) return;
  PIPIT_CUDA(launch_kernel(kernel, {dim3(blocks_for(points)), dim3(kThreads), 0, overlap},
                           static_cast<cudaStream_t>(context.stream), arguments...));
}

/// For kernels that wait for the one in front: begins while that still runs, where the GPU can.
template <typename... Parameters, typename... Arguments>
void launch_waiting(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                    const RunContext& context, const Arguments&... arguments) {
  bool overlap = false;
  check(can_overlap(reinterpret_cast<const void*>(kernel), overlap), name);
  check(launch_kernel(kernel, {grid, block, 0, overlap}, static_cast<cudaStream_t>(context.stream), arguments...),
        name);
}
/// The same with one thread per point; nothing for no points.
template <typename... Parameters, typename... Arguments>
void launch_waiting(const char* name, void (*kernel)(Parameters...), std::int64_t points,
                    const RunContext& context, const Arguments&... arguments) {
  if (points == 0) return;
  launch_waiting(name, kernel, dim3(blocks_for(points)), dim3(kThreads), context, arguments...);
}

/// A copy of its layer and a function that launches early. `kernel` is one of those launched, which are compiled alike.
template <typename L>
class EarlyKernel final : public Kernel {
 public:
  using Run = void (*)(const L& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context, bool overlap);
  EarlyKernel(const L& layer, const void* kernel, Run run) : layer_(layer), run_(run) {
    PIPIT_CUDA(can_overlap(kernel, overlap_));
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    run_(layer_, inputs, outputs, context, overlap_);
  }

 private:
  L layer_;
  Run run_;
  bool overlap_ = false;
};

/// add_kernel() of such a kernel.
template <typename L, typename... Parameters>
void add_early_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                      void (*kernel)(Parameters...), typename EarlyKernel<L>::Run run) {
  Candidate candidate{name, refuse, [kernel, run](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                        return std::make_unique<EarlyKernel<L>>(layer_as<L>(spec.layer),
                                                                reinterpret_cast<const void*>(kernel), run);
                      }};
  candidate.estimate = streaming(refuse);
  registry.add(L::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::cuda
