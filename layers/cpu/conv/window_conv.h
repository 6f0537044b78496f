// What the kernels for convolutions of one register of channels have in common: `depthwise` and `small_groups`.
#pragma once

#include <memory>

#include "engine/graph/half.h"
#include "engine/plan/registry.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/ops/conv.h"

namespace pipit::internal {

/// Why a Conv is not one over stored floats that lie channels_last, with constant weights and a bias in f32 and a shape
/// that `refuse_shape` takes, or nothing. What the shape says comes before layouts, which say less of a layer.
Refusal refuse_window_conv(const NodeSpec& spec, Refusal (*refuse_shape)(const NodeSpec&));

/// Whether it pays that the kernel computes its input a few rows at a time, where it can.
bool pays_to_compute_input(const NodeSpec& spec);

/// Registers K<float>, K<Half> and K<BFloat16>, which differ in what activations are stored in.
template <template <typename> typename K>
void add_window_conv(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                     bool (*fuses_producer)(const NodeSpec&)) {
  Candidate candidate{name, refuse, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                        if (spec.inputs[0]->dtype == DType::f16) return std::make_unique<K<Half>>(spec);
                        if (spec.inputs[0]->dtype == DType::bf16) return std::make_unique<K<BFloat16>>(spec);
                        return std::make_unique<K<float>>(spec);
                      }};
  candidate.fusions.epilogue = fuses_image_epilogue;
  candidate.fusions.producer = fuses_producer;
  registry.add(Conv::kType, DeviceKind::cpu, std::move(candidate));
}

}  // namespace pipit::internal
