// Candidate "resident_gemm" of Conv: fp16 convolutions on Hopper whose weights fit into shared memory
// (conv_resident.cu).
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/conv_resident_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::DeviceBuffer;
using cuda::ResidentArgs;

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
  if (x.shape[1] % 8 != 0) return "channels must be a multiple of 8";
  return cuda::refuse_resident_gemm(spec, shape_of(spec));
}

class ResidentGemm final : public Kernel {
 public:
  explicit ResidentGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)), problem_(spec, shape_), args_(problem_.args()) {
    const int columns = problem_.way().plan.columns;
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<Half> packed = cuda::pack_conv_weights_by_lane(shape_, problem_.depth(), shape_.in_c,
                                                                     weights.values<float>().data(), columns);
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof(Half));
    std::vector<float> bias(static_cast<std::size_t>(shape_.out_c));
    if (const Tensor* given = spec.constant(2))
      std::copy_n(given->values<float>().data(), bias.size(), bias.begin());
    bias = cuda::in_packed_order(std::move(bias), static_cast<std::size_t>(args_.conv.column_tiles) *
                                                      static_cast<std::size_t>(columns));
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = problem_.weights_map(weights_.data());
    args_.conv.bias = bias_.data();
    args_.conv.low = attributes_of(spec).activation.low;
    args_.conv.high = attributes_of(spec).activation.high;
    args_.conv.function = cuda::follower_function(spec);
    PIPIT_CUDA(cuda::prepare_resident_gemm(args_));
    problem_.x_map(
        weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  double kept_share() const override { return problem_.kept_share(); }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + problem_.packed_bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ResidentArgs args = args_;
    args.x = problem_.x_map(inputs[0].data);
    args.conv.residual = optional_data<Half>(inputs, 3);
    args.conv.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_resident_gemm(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  ConvShape shape_;
  cuda::ResidentProblem problem_;
  ResidentArgs args_;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

}  // namespace

void register_cuda_conv_resident(Registry& registry) {
  Candidate candidate{"resident_gemm", refuse,
                      [](const NodeSpec& spec) { return std::make_unique<ResidentGemm>(spec); },
                      [](const NodeSpec& spec) { return cuda::resident_variants(spec, shape_of(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse(spec)) return std::nullopt;
    return cuda::resident_estimate(spec, shape_of(spec));
  };
  candidate.kept_share = [](const NodeSpec& spec) { return cuda::resident_kept_share(spec, shape_of(spec)); };
  candidate.fuses_epilogue = cuda::fuses_function;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
