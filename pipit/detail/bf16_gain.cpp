#include "pipit/detail/bf16_gain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"
#include "pipit/detail/floors.h"
#include "pipit/detail/step_info.h"

namespace pipit::internal::detail {

namespace {

// Whether kernels multiply the layer's operands as bf16 stores them: "tile", for one group and constant weights.
bool multiplies_stored(const ExecutionPlan& plan, const Step& step) {
  const Node& node = plan.graph().nodes()[static_cast<std::size_t>(step.node)];
  const auto* conv = layer_if<Conv>(node);
  if (conv != nullptr ? conv->attributes().groups != 1 : layer_if<Gemm>(node) == nullptr) return false;
  return node.inputs.size() > 1 && plan.graph().value(node.inputs[1]).is_constant();
}

// The step in bf16, with `macs` products in one micro-batch.
StepWork in_bf16(const StepWork& work, std::int64_t macs, bool halves_bytes) {
  StepWork made = work;
  if (macs > 0) made.products = {{macs, Products::bf16}};
  if (halves_bytes) {
    made.read /= 2;
    made.weights /= 2;
    made.written /= 2;
  }
  return made;
}

// In units of an f32 product.
double arithmetic(const StepWork& work, double bf16_products) {
  double sum = 0;
  for (const KernelWork& part : work.products) {
    const double rate = part.products == Products::bf16   ? bf16_products
                        : part.products == Products::fp16 ? 2
                                                          : 1;
    sum += static_cast<double>(work.runs) * static_cast<double>(part.macs) / rate;
  }
  return sum;
}

}  // namespace

std::optional<Bf16Gain> bf16_gain(const ExecutionPlan& plan, double products, const Ceilings& ceilings) {
  const PlanOptions& options = plan.options();
  const Precision precision = options.precision;
  if (products <= 1 || options.device != DeviceKind::cpu) return std::nullopt;
  if ((precision != Precision::fp32 && precision != Precision::fp16) || is_quantized(plan.graph()))
    return std::nullopt;
  const bool estimates = ceilings.known() && ceilings.find(Products::bf16) != nullptr;
  const Floors floors(plan, ceilings);
  double now = 0, then = 0;
  for (const Step& step : plan.steps()) {
    const StepInfo info = step_info(plan, step);
    const auto time = [&](const StepWork& work) {
      return estimates ? floors.of(step, work).ms : arithmetic(work, products);
    };
    const bool halves = precision == Precision::fp32;
    double best = time(in_bf16(info.work, 0, halves));
    if (multiplies_stored(plan, step)) {
      const std::int64_t macs = (info.macs + info.work.runs - 1) / std::max<std::int64_t>(info.work.runs, 1);
      best = std::min(best, time(in_bf16(info.work, macs, halves)));
    }
    now += time(info.work);
    then += best;
  }
  if (!(then > 0) || now / then < kMinBf16Gain) return std::nullopt;
  Bf16Gain gain{precision, now / then};
  if (estimates) gain.floor_ms = now, gain.bf16_floor_ms = then;
  return gain;
}

std::string bf16_note(const std::string& model, const Bf16Gain& gain) {
  const std::string_view now = precision_name(gain.precision);
  const std::string what =
      gain.is_estimate()
          ? fmt::format(
                "may run {:.1f} times as fast with --precision bf16: an estimate, the ratio of the sums of "
                "the layers' floors, {:.3g} ms in {} and {:.3g} ms in bf16, by this machine's ceilings",
                gain.factor, gain.floor_ms, now, gain.bf16_floor_ms)
          : fmt::format(
                "may run up to {:.1f} times as fast as in {} with --precision bf16: an upper bound, of the "
                "arithmetic alone by the rates of the instructions; after 'pipit ceilings' this is an "
                "estimate",
                gain.factor, now);
  return fmt::format(
      "{} {}; 'pipit evaluate' with --precision bf16 --against {} shows what it costs in accuracy", model,
      what, now);
}

std::string bf16_rate_text(double products, const Ceilings& ceilings) {
  if (products <= 1) return {};
  const ArithmeticCeiling* bf16 = ceilings.find(Products::bf16);
  const ArithmeticCeiling* fp32 = ceilings.find(Products::fp32);
  if (ceilings.known() && bf16 != nullptr && fp32 != nullptr && fp32->flops.best > 0)
    return fmt::format(
        "products {:.1f} times as fast as in fp32 ({:.4g} and {:.4g} GFLOP/s, measured by pipit ceilings)",
        bf16->flops.best / fp32->flops.best, 1e-9 * bf16->flops.best, 1e-9 * fp32->flops.best);
  return fmt::format("products up to {:.3g} times as fast as in fp32, by the rates of the instructions",
                     products);
}

}  // namespace pipit::internal::detail
