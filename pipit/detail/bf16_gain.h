// How much faster a model could run in bf16 than as it is planned.
#pragma once

#include <optional>
#include <string>

#include "engine/plan/execution_plan.h"
#include "engine/platform/ceilings.h"

namespace pipit::internal::detail {

/// What bf16 would make of a plan in fp32 or fp16 on the CPU.
struct Bf16Gain {
  Precision precision = Precision::fp32;  ///< of the plan
  double factor = 1;                      ///< how many times as fast
  /// An estimate: the sums of the layers' floors (docs/floors.md), whose ratio the factor is. Both 0: an upper bound,
  /// the ratio of what the arithmetic alone takes at the rates of the instructions.
  double floor_ms = 0;
  double bf16_floor_ms = 0;

  bool is_estimate() const { return floor_ms > 0; }
};

/// Below this factor nothing is said.
inline constexpr double kMinBf16Gain = 1.25;

/// `products`: cpu_bf16_products(). `ceilings`: of this machine, or unknown. bf16 multiplies the convolutions of one
/// group and matrix products with constant weights of the plan, all of their products even where a Winograd kernel
/// needs fewer, if that is faster; it stores floats in 16 bits, and leaves the rest as it is. Nothing where that is
/// less than kMinBf16Gain, for other precisions and devices, and for quantized models.
std::optional<Bf16Gain> bf16_gain(const ExecutionPlan& plan, double products, const Ceilings& ceilings);

/// For users: the factor, and what it is. `model`: its name.
std::string bf16_note(const std::string& model, const Bf16Gain& gain);

/// For users, of a machine: how much faster it multiplies bfloat16 than f32, as measured, or by its instructions where
/// ceilings are not known. Empty where it has no such products.
std::string bf16_rate_text(double products, const Ceilings& ceilings);

}  // namespace pipit::internal::detail
