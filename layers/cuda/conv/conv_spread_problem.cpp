#include "layers/cuda/conv/conv_spread_problem.h"

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_average.h"
#include "layers/cuda/conv/conv_gemm_problem.h"

namespace pipit::cuda {

namespace {

int processors_of(int gpu) {
  int processors = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
  return processors;
}

bool has_kernels() {
  bool result = false;
  PIPIT_CUDA(has_spread_gemm(result));
  return result;
}

}  // namespace

Refusal refuse_spread_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_kernels()) return "only Hopper's GPUs are handled";
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

// An average of its own takes 2.5 us: more than "spread_gemm" was ever ahead where there is one tap.
bool spread_yields(const NodeSpec& spec, const ConvShape& shape) {
  return !spread_goes_first(shape, spread_plan(spec, shape)) || !kept_depth(spec, shape).all() ||
         (shape.kernel_h * shape.kernel_w == 1 && average_follows(spec, shape));
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
