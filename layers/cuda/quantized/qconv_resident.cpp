// Candidate "resident_gemm" of QConv: INT8 convolutions on Hopper whose weights fit into shared memory
// (qconv_resident.cu).
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/conv_resident_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/cuda/quantized/qconv_gemm_operands.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::ResidentArgs;

// in_c in pairs of bytes.
ConvShape shape_of(const NodeSpec& spec) {
  ConvShape shape = cuda::conv_gemm_shape(spec, layer_as<QConv>(spec.layer).attributes().conv,
                                          spec.inputs[0]->shape[1] / 2);
  shape.int8 = true;
  return shape;
}

Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_qconv_gemm(spec)) return reason;
  if (spec.outputs[0].dtype != DType::i8) return "y must be i8";
  if (spec.inputs[0]->shape[1] % 16 != 0) return "channels must be a multiple of 16";
  return cuda::refuse_resident_gemm(spec, shape_of(spec));
}

class QResidentGemm final : public Kernel {
 public:
  explicit QResidentGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)),
        problem_(spec, shape_),
        operands_(spec, shape_, problem_.depth(), shape_.in_c * 2, problem_.way().plan.columns),
        args_(problem_.args()) {
    operands_.set(args_.conv);
    args_.weights = problem_.weights_map(operands_.weights());
    PIPIT_CUDA(cuda::prepare_qresident_gemm(args_));
    problem_.x_map(
        operands_.weights());  // throws what is wrong with the geometry, if anything, before the first run
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  double kept_share() const override { return problem_.kept_share(); }
  std::size_t packed_bytes() const override { return operands_.bytes() + problem_.packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ResidentArgs args = args_;
    args.x = problem_.x_map(inputs[0].data);
    args.conv.residual = optional_data<std::int8_t>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qresident_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  ConvShape shape_;
  cuda::ResidentProblem problem_;
  cuda::QConvGemmOperands operands_;
  ResidentArgs args_;
};

}  // namespace

void register_cuda_qconv_resident(Registry& registry) {
  Candidate candidate{"resident_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<QResidentGemm>(spec); },
                      [](const NodeSpec& spec) { return cuda::resident_variants(spec, shape_of(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return cuda::resident_estimate(spec, shape_of(spec));
  };
  candidate.kept_share = [](const NodeSpec& spec) { return cuda::resident_kept_share(spec, shape_of(spec)); };
  candidate.fuses_epilogue = cuda::fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
