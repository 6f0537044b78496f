// What most kernels are made of: a copy of their layer and one function, enough wherever nothing is packed at
// creation.
#pragma once

#include <memory>

#include "engine/plan/registry.h"

namespace pipit::internal {

template <typename L>
class LayerKernel final : public Kernel {
 public:
  using Run = void (*)(const L& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context);
  LayerKernel(const L& layer, Run function) : layer_(layer), run_(function) {}
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    run_(layer_, inputs, outputs, context);
  }

 private:
  L layer_;
  Run run_;
};

/// Registers a CPU candidate that runs `run`.
template <typename L>
void add_layer_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                      typename LayerKernel<L>::Run run) {
  registry.add(L::kType, DeviceKind::cpu, {name, refuse, [run](const NodeSpec& spec) {
                                             return std::unique_ptr<Kernel>(std::make_unique<LayerKernel<L>>(
                                                 layer_as<L>(spec.layer), run));
                                           }});
}

/// True when dimension 1 of the desc is innermost in memory, by its layout or because nothing else is.
inline bool is_channels_last(const TensorDesc& desc) {
  return desc.layout == Layout::channels_last || desc.layouts_coincide();
}

/// True when the last dimension is innermost.
inline bool is_row_major(const TensorDesc& desc) {
  return desc.layout == Layout::row_major || desc.layouts_coincide();
}

/// Refuses operands whose last dimension is not innermost in memory.
inline Refusal refuse_unless_row_major(const NodeSpec& spec) {
  for (const TensorDesc* input : spec.inputs) {
    if (input != nullptr && !is_row_major(*input)) return "operands must be row_major";
  }
  for (const TensorDesc& output : spec.outputs) {
    if (!is_row_major(output)) return "the output must be row_major";
  }
  return std::nullopt;
}

/// The elements of an optional operand, or null.
template <typename T>
const T* optional_data(std::span<const ConstTensorView> inputs, std::size_t index) {
  return index < inputs.size() && inputs[index].present() ? inputs[index].as<T>() : nullptr;
}

}  // namespace pipit::internal
