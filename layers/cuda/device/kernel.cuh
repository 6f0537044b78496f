// What the files of GPU kernels that are no matrix products share: operands, launches, registration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/operands.cuh"

namespace pipit::internal::cuda {

/// True when `width` neighbours of the loop can be moved at once: the innermost dimension is a multiple of it,
/// operand 0 steps through it by 1, the others by 1 or 0, and whatever steps by 1 is aligned throughout.
template <std::size_t N>
bool vectorizes(const StridedLoop<N>& loop, int width, const std::array<const void*, N>& data,
                const std::array<std::size_t, N>& element_bytes) {
  if (loop.rank() == 0 || loop.row() % width != 0) return false;
  const auto row = loop.row_strides();
  for (std::size_t k = 0; k < N; ++k) {
    if (row[k] == 0 && k > 0) continue;
    if (row[k] != 1) return false;
    const std::size_t bytes = std::min<std::size_t>(16, element_bytes[k] * static_cast<std::size_t>(width));
    if (reinterpret_cast<std::uintptr_t>(data[k]) % bytes != 0) return false;
    for (int d = 0; d + 1 < loop.rank(); ++d) {
      if (loop.strides(d)[k] % width != 0) return false;
    }
  }
  return true;
}

/// Launches kernel(arguments...) with one thread per point; nothing for no points.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), std::int64_t points, const RunContext& context,
            const Arguments&... arguments) {
  if (points == 0) return;
  kernel<<<blocks_for(points), kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(arguments...);
  check_launch(name);
}

/// True for the types that kernels compute with in float.
constexpr bool is_float_or_half(DType type) {
  return type == DType::f32 || is_stored_float(type);
}

/// Refuses int8 precision, and operands whose offsets do not fit 31 bits.
inline Refusal refuse_unless_indexable(const NodeSpec& spec) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1024;
  if (spec.precision == Precision::int8) return "int8 is not handled";
  const auto large = [](const TensorDesc& desc) { return desc.elements() > kLimit; };
  for (const TensorDesc* input : spec.inputs) {
    if (input != nullptr && large(*input)) return "an input has 2^31 elements or more";
  }
  for (const TensorDesc& output : spec.outputs) {
    if (large(output)) return "an output has 2^31 elements or more";
  }
  return std::nullopt;
}

/// The same, and only f32, f16 and bf16 operands.
inline Refusal refuse_unless_float_or_half(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const auto reason = [](const TensorDesc& desc) {
    return "an operand is " + std::string(dtype_name(desc.dtype)) + ", only f32, f16 and bf16 are handled";
  };
  for (const TensorDesc* input : spec.inputs) {
    if (input != nullptr && !is_float_or_half(input->dtype)) return reason(*input);
  }
  for (const TensorDesc& output : spec.outputs) {
    if (!is_float_or_half(output.dtype)) return reason(output);
  }
  return std::nullopt;
}

/// Registers a GPU candidate that is a copy of its layer and one function. estimate: of nodes that it does not refuse;
/// none: it reads its operands and writes its results once.
template <typename L>
void add_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                typename LayerKernel<L>::Run run, Estimate (*estimate)(const NodeSpec&) = nullptr) {
  Candidate candidate{
      name, refuse, [run](const NodeSpec& spec) {
        return std::unique_ptr<Kernel>(std::make_unique<LayerKernel<L>>(layer_as<L>(spec.layer), run));
      }};
  candidate.estimate = streaming(refuse);
  if (estimate != nullptr) {
    candidate.estimate = [refuse, estimate](const NodeSpec& spec) -> std::optional<Estimate> {
      if (refuse(spec)) return std::nullopt;
      return estimate(spec);
    };
  }
  registry.add(L::kType, DeviceKind::cuda, std::move(candidate));
}

// Kernels with one thread per point that may begin while the kernel before still runs (launch.cuh).

/// launch() of kernel.cuh, overlapping where can_overlap() says so.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), std::int64_t points, bool overlap, const RunContext& context,
                  const Arguments&... arguments) {
  if (points == 0) return;
  PIPIT_CUDA(launch_kernel(kernel, {dim3(blocks_for(points)), dim3(kThreads), 0, overlap},
                           static_cast<cudaStream_t>(context.stream), arguments...));
}

/// For kernels that wait for the previous one: begins while that still runs, where the GPU can.
template <typename... Parameters, typename... Arguments>
void launch_waiting(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                    const RunContext& context, const Arguments&... arguments) {
  bool overlap = false;
  check(can_overlap(reinterpret_cast<const void*>(kernel), overlap), name);
  check(launch_kernel(kernel, {grid, block, 0, overlap}, static_cast<cudaStream_t>(context.stream),
                      arguments...),
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

}  // namespace pipit::internal::cuda
