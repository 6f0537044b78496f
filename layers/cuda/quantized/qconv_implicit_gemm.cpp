// Candidate "implicit_gemm" of QConv: INT8 convolution on the tensor cores without a patch matrix.
#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_average.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/cuda/quantized/qconv_gemm_operands.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::ConvGemmArgs;
using cuda::ConvShape;

std::vector<std::string> variant_names(const NodeSpec& spec) {
  return cuda::names_of(cuda::conv_gemm_variants(cuda::qconv_gemm_shape(spec), spec.gpu));
}

bool copies_input(const NodeSpec& spec, const ConvShape& shape) {
  return shape.pixel_units() * 2 != spec.inputs[0]->shape[1] || !is_channels_last(*spec.inputs[0]);
}

std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (cuda::refuse_grouped_qconv_gemm(spec)) return std::nullopt;
  ConvShape shape = cuda::qconv_gemm_shape(spec);
  return cuda::conv_gemm_estimate(spec, shape, copies_input(spec, shape));
}

bool fuses_epilogue(const NodeSpec& spec, const NodeSpec& next) {
  return cuda::fuses_table(spec, next) || cuda::quantizes_average(spec, next) ||
         (cuda::is_average(next) && cuda::fuses_average(spec, cuda::qconv_gemm_shape(spec)));
}

class QImplicitGemm final : public Kernel {
 public:
  explicit QImplicitGemm(const NodeSpec& spec)
      : shape_(cuda::qconv_gemm_shape(spec)),
        channels_(static_cast<int>(spec.inputs[0]->shape[1])),
        copies_(copies_input(spec, shape_)),
        variant_(cuda::chosen_variant(spec, shape_)),
        depth_(cuda::kept_depth(spec, shape_)),
        blocks_(shape_, depth_, variant_.tile.columns),
        operands_(spec, shape_, depth_, channels_, variant_.tile.columns),
        args_(cuda::conv_gemm_args(shape_, depth_, variant_.tile)) {
    args_.overlap = variant_.overlap;
    blocks_.set(args_);
    operands_.set(args_);
    args_.average = cuda::average_args(spec, shape_, variant_.tile);
    PIPIT_CUDA(cuda::prepare_qconv_gemm(variant_.tile, args_));
  }

  std::size_t scratch_bytes() const override {
    return copies_ ? static_cast<std::size_t>(pixels() * shape_.in_c * 2) : 0;
  }
  bool settles() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return operands_.bytes() + blocks_.bytes(); }
  double kept_share() const override { return depth_.share(variant_.tile.columns); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    args.x = copies_ ? copy_input(inputs[0], reinterpret_cast<std::int8_t*>(context.scratch), stream)
                     : inputs[0].as<std::int8_t>();
    args.residual = optional_data<std::int8_t>(inputs, 3);
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qconv_gemm(variant_.tile, args, stream));
  }

 private:
  std::int64_t pixels() const { return static_cast<std::int64_t>(shape_.batch) * shape_.in_h * shape_.in_w; }

  const std::int8_t* copy_input(const ConstTensorView& x, std::int8_t* to, cudaStream_t stream) const {
    const Strides strides = x.desc.strides();
    cuda::PadBytesArgs args;
    args.x = x.as<std::int8_t>();
    args.y = to;
    args.channels = channels_;
    args.padded = shape_.in_c * 2;
    args.pixels = pixels();
    args.pixels_per_image = static_cast<std::int64_t>(shape_.in_h) * shape_.in_w;
    args.image_stride = strides[0];
    args.channel_stride = strides[1];
    args.pixel_stride = strides[3];  // rows lie behind each other in both layouts
    PIPIT_CUDA(cuda::launch_pad_bytes(args, stream));
    return to;
  }

  ConvShape shape_;
  int channels_;  ///< of x itself
  bool copies_;   ///< x is brought to [pixels, in_c] first
  cuda::ConvVariant variant_;
  cuda::KeptDepth depth_;
  cuda::DepthOnGpu blocks_;
  cuda::QConvGemmOperands operands_;
  ConvGemmArgs args_;
};

}  // namespace

void register_cuda_qconv_implicit_gemm(Registry& registry) {
  Candidate candidate{"implicit_gemm", cuda::refuse_grouped_qconv_gemm,
                      [](const NodeSpec& spec) { return std::make_unique<QImplicitGemm>(spec); },
                      variant_names};
  candidate.estimate = estimate;
  candidate.kept_share = [](const NodeSpec& spec) {
    return cuda::kept_share(spec, cuda::qconv_gemm_shape(spec));
  };
  candidate.fuses_epilogue = fuses_epilogue;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
