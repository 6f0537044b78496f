// Candidate "spread_gemm" of QConv: INT8 convolutions of few positions on Hopper (qconv_spread.cu).
#include "layers/cuda/quantized/qconv_spread.h"
#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/conv_spread_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::SpreadArgs;

// in_c in pairs of bytes.
ConvShape shape_of(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  ConvShape shape = cuda::conv_gemm_shape(spec, a.conv, spec.inputs[0]->shape[1] / 2);
  shape.int8 = true;
  shape.real_output = !a.y.quantized();
  return shape;
}

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_qconv_gemm(spec)) return reason;
  if (spec.inputs[0]->shape[1] % 16 != 0) return "channels must be a multiple of 16";
  return cuda::refuse_spread_gemm(spec, shape_of(spec));
}

class QSpreadGemm final : public Kernel {
 public:
  explicit QSpreadGemm(const NodeSpec& spec) : QSpreadGemm(spec, shape_of(spec)) {}
  bool settles() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return operands_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SpreadArgs args = args_;
    args.conv.x = inputs[0].data;
    args.x_is_settled = context.is_settled(0);
    args.conv.residual = optional_data<std::int8_t>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qspread_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  QSpreadGemm(const NodeSpec& spec, const ConvShape& shape)
      : args_(cuda::spread_args(shape, cuda::spread_plan(spec, shape))),
        operands_(cuda::spread_operands(spec, shape, args_.plan)) {
    operands_.set(args_.conv);
    PIPIT_CUDA(cuda::prepare_qspread_gemm(args_));
  }

  SpreadArgs args_;
  cuda::QConvGemmOperands operands_;
};

}  // namespace

namespace cuda {

QConvGemmOperands spread_operands(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  return {spec, shape, pack_spread(shape, plan, 1, std::as_bytes(weights.values<std::int8_t>()).data()),
          kSpreadColumns};
}

}  // namespace cuda

void register_cuda_qconv_spread(Registry& registry) {
  Candidate candidate{"spread_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<QSpreadGemm>(spec); },
                      [](const NodeSpec& spec) { return cuda::spread_variants(spec, shape_of(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return cuda::spread_estimate(spec, shape_of(spec));
  };
  candidate.fuses_epilogue = cuda::fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
