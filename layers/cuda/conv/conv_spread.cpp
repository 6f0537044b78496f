// Candidate "spread_gemm" of Conv: fp16 convolutions of few positions on Hopper (conv_spread.cu).
#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/conv_spread_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::SpreadArgs;

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<Conv>(spec.layer).attributes();
}

ConvShape shape_of(const NodeSpec& spec) {
  return cuda::conv_gemm_shape(spec, attributes_of(spec), spec.inputs[0]->shape[1]);
}

Refusal refuse(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  if (spec.precision != Precision::fp16 || x.dtype != DType::f16 || spec.outputs[0].dtype != DType::f16)
    return "only fp16 is handled";
  if (spec.has_input(3) && spec.inputs[3]->dtype != DType::f16) return "the residual must be f16";
  if (Refusal reason = cuda::refuse_conv_gemm(spec, attributes_of(spec), x.shape[1])) return reason;
  return cuda::refuse_spread_gemm(spec, shape_of(spec));
}

class SpreadGemm final : public Kernel {
 public:
  explicit SpreadGemm(const NodeSpec& spec) : SpreadGemm(spec, shape_of(spec)) {}
  bool settles() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadArgs args = args_;
    args.conv.x = inputs[0].data;
    args.x_is_settled = context.is_settled(0);
    args.conv.residual = optional_data<Half>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_spread_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  SpreadGemm(const NodeSpec& spec, const ConvShape& shape)
      : args_(cuda::spread_args(shape, cuda::spread_plan(spec, shape))), constants_(spec, shape, args_.plan) {
    constants_.set(args_.conv);
    args_.conv.function = cuda::follower_function(spec);
    PIPIT_CUDA(cuda::prepare_spread_gemm(args_));
  }

  SpreadArgs args_;
  cuda::SpreadConstants constants_;
};

}  // namespace

void register_cuda_conv_spread(Registry& registry) {
  Candidate candidate{"spread_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<SpreadGemm>(spec); },
                      [](const NodeSpec& spec) { return cuda::spread_variants(spec, shape_of(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return cuda::spread_estimate(spec, shape_of(spec));
  };
  candidate.fuses_epilogue = cuda::fuses_function;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
