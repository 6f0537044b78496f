#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

/// Weights and biases of a Conv on the GPU.
class SpreadConstants {
 public:
  SpreadConstants(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan)
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
  /// Sets them and the activation.
  void set(ConvGemmArgs& args) const {
    args.weights = weights_.data();
    args.bias = bias_.data();
    args.low = activation_.low, args.high = activation_.high;
  }
  std::size_t bytes() const { return weights_.bytes() + bias_.bytes(); }

 private:
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  Clamp activation_;
};

/// What no instance handles, beside what refuse_conv_gemm names.
Refusal refuse_spread_gemm(const NodeSpec& spec, const ConvShape& shape) {
  if (!is_channels_last(*spec.inputs[0])) return "x must be channels_last";
  if (!has_hopper_kernels()) return "only Hopper's GPUs are handled";
  return refuse_spread(shape);
}

/// The names of the variants, the likely best first.
std::vector<std::string> spread_variants(const NodeSpec& spec, const ConvShape& shape) {
  std::vector<std::string> names;
  for (const SpreadPlan& plan : spread_plans(shape, processors_of(spec.gpu))) names.push_back(plan.name());
  return names;
}

/// The plan that the spec names, or the first. Throws Error when there is none of that name.
SpreadPlan spread_plan(const NodeSpec& spec, const ConvShape& shape) {
  const std::vector<SpreadPlan> plans = spread_plans(shape, processors_of(spec.gpu));
  if (spec.variant.empty()) return plans.front();
  for (const SpreadPlan& plan : plans) {
    if (plan.name() == spec.variant) return plan;
  }
  fail("there is no variant '{}'", spec.variant);
}

/// The estimate of "spread_gemm" in the spec's variant, or the one that it chooses.
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

/// The constants of a QConv.
QConvGemmOperands spread_operands(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  return {spec, shape, pack_spread(shape, plan, 1, std::as_bytes(weights.values<std::int8_t>()).data()),
          kSpreadColumns};
}

// Candidate "spread_gemm" of Conv: fp16 convolutions of few positions on Hopper.

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = refuse_half_conv(spec)) return reason;
  return refuse_spread_gemm(spec, half_conv_shape(spec));
}

class SpreadGemm final : public Kernel {
 public:
  explicit SpreadGemm(const NodeSpec& spec) : SpreadGemm(spec, half_conv_shape(spec)) {}
  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadArgs args = args_;
    args.conv.x = inputs[0].data;
    args.x_is_settled = context.is_settled(0);
    args.conv.residual = optional_data<Half>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(launch_spread_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  SpreadGemm(const NodeSpec& spec, const ConvShape& shape)
      : args_(spread_args(shape, spread_plan(spec, shape))), constants_(spec, shape, args_.plan) {
    constants_.set(args_.conv);
    args_.conv.function = follower_function(spec);
    PIPIT_CUDA(prepare_spread_gemm(args_));
  }

  SpreadArgs args_;
  SpreadConstants constants_;
};

}  // namespace

void register_cuda_conv_spread(Registry& registry) {
  Candidate candidate{"spread_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<SpreadGemm>(spec); },
                      [](const NodeSpec& spec) { return spread_variants(spec, half_conv_shape(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return spread_estimate(spec, half_conv_shape(spec));
  };
  candidate.fusions.epilogue = fuses_function;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

// Candidate "spread_gemm" of QConv: INT8 convolutions of few positions on Hopper.

namespace {

Refusal refuse_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_qconv_gemm(spec)) return reason;
  if (spec.inputs[0]->shape[1] % 16 != 0) return "channels must be a multiple of 16";
  return refuse_spread_gemm(spec, pair_conv_shape(spec));
}

class QSpreadGemm final : public Kernel {
 public:
  explicit QSpreadGemm(const NodeSpec& spec) : QSpreadGemm(spec, pair_conv_shape(spec)) {}
  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return operands_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadArgs args = args_;
    args.conv.x = inputs[0].data;
    args.x_is_settled = context.is_settled(0);
    args.conv.residual = optional_data<std::int8_t>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(launch_spread_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  QSpreadGemm(const NodeSpec& spec, const ConvShape& shape)
      : args_(spread_args(shape, spread_plan(spec, shape))),
        operands_(spread_operands(spec, shape, args_.plan)) {
    operands_.set(args_.conv);
    PIPIT_CUDA(prepare_spread_gemm(args_));
  }

  SpreadArgs args_;
  QConvGemmOperands operands_;
};

}  // namespace

void register_cuda_qconv_spread(Registry& registry) {
  Candidate candidate{"spread_gemm", refuse_int8,
                      [](const NodeSpec& spec) { return std::make_unique<QSpreadGemm>(spec); },
                      [](const NodeSpec& spec) { return spread_variants(spec, pair_conv_shape(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_int8(spec)) return std::nullopt;
    return spread_estimate(spec, pair_conv_shape(spec));
  };
  candidate.fusions.epilogue = fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::internal
