// Candidate "implicit_gemm": convolution in fp16 and bf16 on the tensor cores without a patch matrix.
#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/implicit_gemm/padded_input.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using cuda::ConvGemmArgs;
using cuda::ConvShape;
using cuda::ConvTile;
using cuda::ConvVariant;
using cuda::DeviceBuffer;

/// Channels as the kernel reads them: 8-byte copies for narrow images, else 16-byte copies.
std::int64_t padded_channels(std::int64_t channels) {
  return channels <= 4 ? 4 : ceil_div(channels, 8) * 8;
}

Refusal refuse_implicit_gemm(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  // An f32 image is converted while its channels are padded.
  if (Refusal reason = cuda::refuse_other_types(spec, true)) return reason;
  return cuda::refuse_grouped_conv_gemm(spec, attributes, padded_channels(spec.inputs[0]->shape[1]));
}

ConvShape shape_of(const NodeSpec& spec) {
  ConvShape shape = cuda::conv_gemm_shape(spec, layer_as<Conv>(spec.layer).attributes(),
                                          padded_channels(spec.inputs[0]->shape[1]));
  shape.averaged = cuda::averages(spec);
  cuda::kept_depth(spec, shape).describe(shape);
  return shape;
}

// Whether x is brought to [pixels, in_c] first.
bool copies_input(const NodeSpec& spec, const ConvShape& shape) {
  const TensorDesc& x = *spec.inputs[0];
  return shape.in_c != x.shape[1] || !is_channels_last(x) || !is_stored_float(x.dtype);
}

std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (refuse_implicit_gemm(spec)) return std::nullopt;
  const ConvShape shape = shape_of(spec);
  return cuda::conv_gemm_estimate(spec, shape, copies_input(spec, shape));
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  return cuda::names_of(cuda::conv_gemm_variants(spec, shape_of(spec)));
}

class ImplicitGemm final : public Kernel {
 public:
  explicit ImplicitGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)),
        channels_(static_cast<int>(spec.inputs[0]->shape[1])),
        vector_(shape_.in_c == 4 ? 4 : 8),
        copies_(copies_input(spec, shape_)),
        variant_(cuda::chosen_variant(spec, shape_)),
        tile_(variant_.tile) {
    const cuda::KeptDepth depth = cuda::kept_depth(spec, shape_, tile_);
    depth_ = cuda::DepthOnGpu(shape_, depth, tile_.columns);
    kept_share_ = depth.share(tile_.columns);
    const Clamp& clamp = layer_as<Conv>(spec.layer).attributes().activation;
    args_ = cuda::conv_gemm_args(shape_, depth, tile_);
    depth_.set(args_);
    args_.overlap = variant_.overlap;
    args_.low = clamp.low;
    args_.high = clamp.high;
    args_.function = cuda::follower_function(spec);
    args_.average = cuda::average_args(spec, shape_, tile_);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<std::uint16_t> packed =
        cuda::pack_conv_weights(shape_, depth, channels_, weights.values<float>().data(), tile_.columns);
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof packed[0]);
    std::vector<float> bias(static_cast<std::size_t>(args_.column_tiles) *
                            static_cast<std::size_t>(tile_.columns));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), shape_.out_c, bias.begin());
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.data();
    args_.bias = bias_.as<const float>();
    PIPIT_CUDA(cuda::prepare_conv_gemm(tile_, vector_, args_));
  }

  std::size_t scratch_bytes() const override {
    return copies_ ? static_cast<std::size_t>(pixels() * shape_.in_c) * 2 : 0;
  }
  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes() + depth_.bytes(); }
  double kept_share() const override { return kept_share_; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    if (!copies_) args.x = inputs[0].data;
    if (copies_) args.x = copy_input(inputs[0], reinterpret_cast<std::uint16_t*>(context.scratch), stream);
    args.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_conv_gemm(tile_, vector_, args, stream));
  }

 private:
  std::int64_t pixels() const { return static_cast<std::int64_t>(shape_.batch) * shape_.in_h * shape_.in_w; }

  const void* copy_input(const ConstTensorView& x, std::uint16_t* to, cudaStream_t stream) const {
    const Strides strides = x.desc.strides();
    cuda::PadChannelsArgs args;
    args.x = x.data;
    args.x_f32 = x.desc.dtype == DType::f32;
    args.bf16 = shape_.bf16;
    args.y = to;
    args.channels = channels_;
    args.padded = shape_.in_c;
    args.pixels = pixels();
    args.pixels_per_image = static_cast<std::int64_t>(shape_.in_h) * shape_.in_w;
    args.image_stride = strides[0];
    args.channel_stride = strides[1];
    args.pixel_stride = strides[3];  // rows are contiguous in both layouts
    PIPIT_CUDA(cuda::launch_pad_channels(args, stream));
    return to;
  }

  ConvShape shape_;
  int channels_;  ///< of x itself
  int vector_;
  bool copies_;  ///< x is brought to [pixels, in_c] first
  ConvVariant variant_;
  ConvTile tile_;
  ConvGemmArgs args_;
  cuda::DepthOnGpu depth_;
  double kept_share_ = 1;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

// Kernels for lists of blocks have no function.
bool fuses_epilogue(const NodeSpec& spec, const NodeSpec& next) {
  if (cuda::fuses_function(spec, next)) return cuda::kept_depth(spec, shape_of(spec)).all();
  return cuda::quantizes_average(spec, next) ||
         (cuda::is_average(next) && cuda::fuses_average(spec, shape_of(spec)));
}

}  // namespace

void register_cuda_conv_implicit_gemm(Registry& registry) {
  Candidate candidate{"implicit_gemm", refuse_implicit_gemm,
                      [](const NodeSpec& spec) { return std::make_unique<ImplicitGemm>(spec); },
                      variant_names};
  candidate.estimate = estimate;
  candidate.kept_share = [](const NodeSpec& spec) { return cuda::kept_share(spec, shape_of(spec)); };
  candidate.fusions.epilogue = fuses_epilogue;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

// Candidate "implicit_gemm" of QConv: INT8 convolution on the tensor cores without a patch matrix.

namespace {

using cuda::ConvGemmArgs;
using cuda::ConvShape;

std::vector<std::string> variant_names_int8(const NodeSpec& spec) {
  return cuda::names_of(cuda::conv_gemm_variants(spec, cuda::qconv_gemm_shape(spec)));
}

bool copies_input_int8(const NodeSpec& spec, const ConvShape& shape) {
  return shape.pixel_units() * 2 != spec.inputs[0]->shape[1] || !is_channels_last(*spec.inputs[0]);
}

std::optional<Estimate> estimate_int8(const NodeSpec& spec) {
  if (cuda::refuse_grouped_qconv_gemm(spec)) return std::nullopt;
  ConvShape shape = cuda::qconv_gemm_shape(spec);
  return cuda::conv_gemm_estimate(spec, shape, copies_input_int8(spec, shape));
}

bool fuses_epilogue_int8(const NodeSpec& spec, const NodeSpec& next) {
  return cuda::fuses_table(spec, next) || cuda::quantizes_average(spec, next) ||
         (cuda::is_average(next) && cuda::fuses_average(spec, cuda::qconv_gemm_shape(spec)));
}

class QImplicitGemm final : public Kernel {
 public:
  explicit QImplicitGemm(const NodeSpec& spec)
      : shape_(cuda::qconv_gemm_shape(spec)),
        copies_(copies_input_int8(spec, shape_)),
        variant_(cuda::chosen_variant(spec, shape_)),
        depth_(cuda::kept_depth(spec, shape_, variant_.tile)),
        blocks_(shape_, depth_, variant_.tile.columns),
        operands_(spec, shape_, depth_, static_cast<int>(spec.inputs[0]->shape[1]), variant_.tile.columns),
        args_(cuda::conv_gemm_args(shape_, depth_, variant_.tile)) {
    args_.overlap = variant_.overlap;
    blocks_.set(args_);
    operands_.set(args_);
    args_.average = cuda::average_args(spec, shape_, variant_.tile);
    PIPIT_CUDA(cuda::prepare_qconv_gemm(variant_.tile, args_));
  }

  std::size_t scratch_bytes() const override { return copies_ ? cuda::padded_input_bytes(shape_) : 0; }
  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return operands_.bytes() + blocks_.bytes(); }
  double kept_share() const override { return depth_.share(variant_.tile.columns); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    args.x =
        copies_ ? cuda::pad_input(inputs[0], shape_, context.scratch, stream) : inputs[0].as<std::int8_t>();
    args.residual = optional_data<std::int8_t>(inputs, 3);
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qconv_gemm(variant_.tile, args, stream));
  }

 private:
  ConvShape shape_;
  bool copies_;  ///< x is brought to [pixels, in_c] first
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
                      variant_names_int8};
  candidate.estimate = estimate_int8;
  candidate.kept_share = [](const NodeSpec& spec) {
    return cuda::kept_share(spec, cuda::qconv_gemm_shape(spec));
  };
  candidate.fusions.epilogue = fuses_epilogue_int8;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::internal
