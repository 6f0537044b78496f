#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

/// What no instance handles, beside what refuse_conv_gemm names.
Refusal refuse_spread_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return refuse_spread(shape);
}

Estimate plan_estimate(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan) {
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

/// The plans, the one with the least estimate first.
std::vector<SpreadPlan> plans_of(const NodeSpec& spec, const ConvShape& shape) {
  return least_first(spread_plans(shape, processors_of(spec.gpu)),
                     [&](const SpreadPlan& plan) { return plan_estimate(spec, shape, plan); });
}

/// The plan that the spec names, or the first. Throws Error when there is none of that name.
SpreadPlan spread_plan(const NodeSpec& spec, const ConvShape& shape) {
  return find_variant(plans_of(spec, shape), spec.variant);
}

/// The estimate of "spread_gemm" in the spec's variant, or the one that it chooses.
Estimate spread_estimate(const NodeSpec& spec, const ConvShape& shape) {
  return plan_estimate(spec, shape, spread_plan(spec, shape));
}

// Candidate "spread_gemm" of Conv: convolutions in fp16 and bf16 of few positions on Hopper.

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_half_conv(spec)) return reason;
  return refuse_spread_gemm(spec, half_conv_shape(spec));
}

class SpreadGemm : public PackedKernel {
 public:
  SpreadGemm(const NodeSpec& spec, const ConvShape& shape)
      : args_(spread_args(shape, spread_plan(spec, shape))) {}
  bool orders_prior_writes() const override { return true; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadArgs args = args_;
    args.conv.x = inputs[0].data;
    args.x_is_settled = context.is_settled(0);
    args.conv.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(launch_spread_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 protected:
  SpreadArgs args_;
};

class HalfSpreadGemm final : public SpreadGemm {
 public:
  explicit HalfSpreadGemm(const NodeSpec& spec) : SpreadGemm(spec, half_conv_shape(spec)) {
    const ConvShape& shape = args_.conv.shape;
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    std::vector<std::uint16_t> narrow;
    for (const float w : weights.values<float>())
      narrow.push_back(narrow_bits(w, internal::stored_type(spec.precision)));
    args_.conv.weights =
        keep(pack_spread(shape, args_.plan, sizeof narrow[0], std::as_bytes(std::span(narrow)).data()));
    std::vector<float> bias = conv_biases(spec);
    bias.resize(static_cast<std::size_t>(ceil_div(shape.out_c, kSpreadColumns) * kSpreadColumns));
    args_.conv.bias = keep(bias);
    const Clamp& clamp = layer_as<Conv>(spec.layer).attributes().activation;
    args_.conv.low = clamp.low, args_.conv.high = clamp.high;
    args_.conv.function = follower_function(spec);
    PIPIT_CUDA(prepare_spread_gemm(args_));
  }
};

// Candidate "spread_gemm" of QConv: INT8 convolutions of few positions on Hopper.

Refusal refuse_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_qconv_gemm(spec)) return reason;
  if (spec.inputs[0]->shape[1] % 16 != 0) return "channels must be a multiple of 16";
  return refuse_spread_gemm(spec, pair_conv_shape(spec));
}

class Int8SpreadGemm final : public SpreadGemm {
 public:
  explicit Int8SpreadGemm(const NodeSpec& spec)
      : SpreadGemm(spec, pair_conv_shape(spec)), operands_(operands_of(spec, args_)) {
    operands_.set(args_.conv);
    PIPIT_CUDA(prepare_spread_gemm(args_));
  }
  std::size_t packed_bytes() const override { return operands_.bytes(); }

 private:
  static QConvGemmOperands operands_of(const NodeSpec& spec, const SpreadArgs& args) {
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::byte* from = std::as_bytes(weights.values<std::int8_t>()).data();
    return {spec, args.conv.shape, pack_spread(args.conv.shape, args.plan, 1, from), kSpreadColumns};
  }

  QConvGemmOperands operands_;
};

}  // namespace

void register_cuda_spread_gemm(Registry& registry) {
  const auto estimate = [](const NodeSpec& spec) { return spread_estimate(spec, half_conv_shape(spec)); };
  const auto variants = [](const NodeSpec& spec) {
    return variant_names_of(plans_of(spec, half_conv_shape(spec)));
  };
  registry.add(Conv::kType, DeviceKind::cuda,
               conv_candidate<HalfSpreadGemm>("spread_gemm", refuse, estimate, fuses_function, variants));
  const auto estimate_int8 = [](const NodeSpec& spec) {
    return spread_estimate(spec, pair_conv_shape(spec));
  };
  const auto variants_int8 = [](const NodeSpec& spec) {
    return variant_names_of(plans_of(spec, pair_conv_shape(spec)));
  };
  registry.add(
      QConv::kType, DeviceKind::cuda,
      conv_candidate<Int8SpreadGemm>("spread_gemm", refuse_int8, estimate_int8, fuses_table, variants_int8));
}

}  // namespace pipit::internal
