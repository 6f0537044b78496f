#include "layers/cuda/conv/conv_spread_problem.h"

#include <fmt/format.h>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_average.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"

namespace pipit::cuda {

namespace {

}  // namespace

Refusal refuse_spread_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return refuse_spread(shape);
}

std::vector<std::string> spread_variants(const NodeSpec& spec, const ConvShape& shape) {
  std::vector<std::string> names;
  for (const SpreadPlan& plan : spread_plans(shape, processors_of(spec.gpu))) names.push_back(plan.name());
  return names;
}

SpreadPlan spread_plan(const NodeSpec& spec, const ConvShape& shape) {
  const std::vector<SpreadPlan> plans = spread_plans(shape, processors_of(spec.gpu));
  if (spec.variant.empty()) return plans.front();
  for (const SpreadPlan& plan : plans) {
    if (plan.name() == spec.variant) return plan;
  }
  fail("there is no variant '{}'", spec.variant);
}

Estimate spread_estimate(const NodeSpec& spec, const ConvShape& shape) {
  const SpreadPlan plan = spread_plan(spec, shape);
  const int processors = processors_of(spec.gpu);
  const std::int64_t blocks =
      ceil_div(shape.rows(), kSpreadRows) * ceil_div(shape.out_c, kSpreadColumns) * plan.slices;
  LaunchTerms terms;
  terms.steps = plan.steps_of_group();
  terms.rounds = static_cast<double>(ceil_div(blocks, processors));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.shared = plan.slices > 1 ? plan.slices : 0;
  return estimate_of(
      fmt::format("spread_gemm {}{}", shape.int8 ? "i8" : "f16", plan.slices > 1 ? " shared" : ""), terms);
}

SpreadConstants::SpreadConstants(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan)
    : activation_(layer_as<Conv>(spec.layer).attributes().activation) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  std::vector<Half> halves;
  for (const float w : weights.values<float>()) halves.push_back(to_half(w));
  const std::vector<std::byte> packed =
      pack_spread(shape, plan, sizeof(Half), std::as_bytes(std::span(halves)).data());
  weights_ = DeviceBuffer(packed.data(), packed.size());
  std::vector<float> bias(static_cast<std::size_t>(ceil_div(shape.out_c, kSpreadColumns) * kSpreadColumns));
  if (const Tensor* given = spec.constant(2))
    std::copy_n(given->values<float>().data(), shape.out_c, bias.begin());
  bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
}

void SpreadConstants::set(ConvGemmArgs& args) const {
  args.weights = weights_.data();
  args.bias = bias_.data();
  args.low = activation_.low, args.high = activation_.high;
}

}  // namespace pipit::cuda
