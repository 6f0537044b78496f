// A kernel made of a copy of its layer and one function: enough wherever nothing is packed at creation.
#pragma once

#include <memory>
#include <string>

#include "engine/registry.h"

namespace pipit {

template <typename L>
class LayerKernel final : public Kernel {
 public:
  using Run = void (*)(const L& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context);
  LayerKernel(const L& layer, Run run) : layer_(layer), run_(run) {}
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    run_(layer_, inputs, outputs, context);
  }

 private:
  L layer_;
  Run run_;
};

/// Refuses everything but fp32 arithmetic.
inline Refusal refuse_precision(const NodeSpec& spec) {
  if (spec.precision == Precision::fp32) return std::nullopt;
  return std::string(precision_name(spec.precision)) + " is not available on the CPU yet";
}

/// refuse_precision, and refuses nodes with an input or output that is not f32.
inline Refusal refuse_unless_f32(const NodeSpec& spec) {
  if (Refusal reason = refuse_precision(spec)) return reason;
  const auto not_f32 = [](const TensorDesc& desc) -> Refusal {
    if (desc.dtype == DType::f32) return std::nullopt;
    return std::string(dtype_name(desc.dtype)) + " operands are not supported, only f32";
  };
  for (const TensorDesc* input : spec.inputs) {
    if (input == nullptr) continue;
    if (Refusal reason = not_f32(*input)) return reason;
  }
  for (const TensorDesc& output : spec.outputs) {
    if (Refusal reason = not_f32(output)) return reason;
  }
  return std::nullopt;
}

/// Registers a CPU candidate that runs `run`.
template <typename L>
void add_layer_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                      typename LayerKernel<L>::Run run) {
  registry.add(L::kType, DeviceKind::cpu, {name, refuse, [run](const NodeSpec& spec) {
                                             return std::unique_ptr<Kernel>(std::make_unique<LayerKernel<L>>(
                                                 layer_as<L>(spec.layer), run));
                                           }});
}

}  // namespace pipit
