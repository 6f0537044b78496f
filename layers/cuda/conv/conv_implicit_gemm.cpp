// Candidate "implicit_gemm": fp16 convolution on the tensor cores without a patch matrix.
#include <bit>
#include <cmath>

#include "engine/cuda/runtime.h"
#include "engine/plan/candidate_order.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_average.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

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
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  // An f32 image is converted while its channels are padded.
  if (spec.precision != Precision::fp16 || (x.dtype != DType::f16 && x.dtype != DType::f32) ||
      y.dtype != DType::f16)
    return "only fp16 is handled";
  if (spec.has_input(3) && spec.inputs[3]->dtype != DType::f16) return "the residual must be f16";
  return cuda::refuse_grouped_conv_gemm(spec, attributes, padded_channels(x.shape[1]));
}

ConvShape shape_of(const NodeSpec& spec) {
  ConvShape shape = cuda::conv_gemm_shape(spec, layer_as<Conv>(spec.layer).attributes(),
                                          padded_channels(spec.inputs[0]->shape[1]));
  shape.averaged = cuda::averages(spec);
  cuda::kept_depth(spec, shape).describe(shape);
  return shape;
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  return cuda::names_of(cuda::conv_gemm_variants(shape_of(spec), spec.gpu));
}

class ImplicitGemm final : public Kernel {
 public:
  explicit ImplicitGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)),
        channels_(static_cast<int>(spec.inputs[0]->shape[1])),
        vector_(shape_.in_c == 4 ? 4 : 8),
        copies_(shape_.in_c != channels_ || !is_channels_last(*spec.inputs[0]) ||
                spec.inputs[0]->dtype != DType::f16),
        variant_(cuda::chosen_variant(spec, shape_)),
        tile_(variant_.tile) {
    const cuda::KeptDepth depth = cuda::kept_depth(spec, shape_);
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
    const std::vector<Half> packed =
        cuda::pack_conv_weights(shape_, depth, channels_, weights.values<float>().data(), tile_.columns);
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof(Half));
    std::vector<float> bias(static_cast<std::size_t>(args_.column_tiles) *
                            static_cast<std::size_t>(tile_.columns));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), shape_.out_c, bias.begin());
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.as<const Half>();
    args_.bias = bias_.as<const float>();
    PIPIT_CUDA(cuda::prepare_conv_gemm(tile_, vector_, args_));
  }

  std::size_t scratch_bytes() const override {
    return copies_ ? static_cast<std::size_t>(pixels() * shape_.in_c) * sizeof(Half) : 0;
  }
  bool settles() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes() + depth_.bytes(); }
  double kept_share() const override { return kept_share_; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    if (!copies_) args.x = inputs[0].as<Half>();
    if (copies_) args.x = copy_input(inputs[0], reinterpret_cast<Half*>(context.scratch), stream);
    args.residual = optional_data<Half>(inputs, 3);
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_conv_gemm(tile_, vector_, args, stream));
  }

 private:
  std::int64_t pixels() const { return static_cast<std::int64_t>(shape_.batch) * shape_.in_h * shape_.in_w; }

  const Half* copy_input(const ConstTensorView& x, Half* to, cudaStream_t stream) const {
    const Strides strides = x.desc.strides();
    cuda::PadChannelsArgs args;
    args.x = x.data;
    args.x_half = x.desc.dtype == DType::f16;
    args.y = to;
    args.channels = channels_;
    args.padded = shape_.in_c;
    args.pixels = pixels();
    args.pixels_per_image = static_cast<std::int64_t>(shape_.in_h) * shape_.in_w;
    args.image_stride = strides[0];
    args.channel_stride = strides[1];
    args.pixel_stride = strides[3];  // rows lie behind each other in both layouts
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

// From how many multiply-accumulates on a convolution is the library's: on an H200 its kernels took 0.5 to 1.0 times as
// long from there on, while short ones start faster here, and without the time that a library's plan takes to build.
// Later where x is read with strides for one tap, which the library does badly (64 to 128 channels at 56x56, batch 128:
// 203 us against 23), and for windows over few channels. Likewise for one tap over channels that are no multiple of 32:
// on an H100 the library took 60 to 61 us for 112 to 672 at 14x14, batch 32, which take 13 to 22 here with SiLU; at
// batch 128 it took 26 to 32, and 41 to 43 are here with it. For 144 and 240 channels to 24 to 40 at batch 128 it took
// 12 to 67 us, and 0.85 to 1.4 times as long here. Sooner for deep products of one tap with few results: alone our
// tiles take as long, but the blocks that share such a depth stand in the way of the layers around them.
std::int64_t least_library_macs(const Window& window, std::int64_t channels, std::int64_t outputs,
                                std::int64_t positions) {
  constexpr std::int64_t kMillion = 1'000'000;
  if (window.taps() > 1) return window.taps() * channels < 1024 ? 4000 * kMillion : 400 * kMillion;
  if (window.stride[0] > 1 || window.stride[1] > 1) return 6000 * kMillion;
  if (channels % 32 != 0) return 1800 * kMillion;
  return channels >= 512 && channels > outputs && positions >= 128 ? 50 * kMillion : 400 * kMillion;
}

// Groups for which the library has kernels of their own: on an H200, at batch 32 and 128, it took 0.5 to 1.0 times as
// long for 4 to 32 channels of 128 to 1024 (ResNeXt-50), 1.1 to 1.6 times as long for 8 of 48 and 104 (RegNetY-400MF),
// and 4 to 12 times for 24 of 96 to 1008 (RegNetX-3.2GF). At batch 1 0.6 to 1.9, 0.6 to 1.7 and 6 to 9 times.
bool has_library_groups(std::int64_t groups, std::int64_t channels) {
  constexpr std::uint64_t kNarrow = 4, kWide = 32;
  constexpr std::int64_t kMany = 128;
  const auto width = static_cast<std::uint64_t>(channels / groups);
  return std::has_single_bit(width) && width >= kNarrow && width <= kWide && channels >= kMany;
}

// Results that are bounded from above (relu6) stay here: the library has no ready kernel for them, and took up to 260
// times as long. So do layers many of whose weights are zeros, which the library multiplies as well, and those whose
// function is computed here, unless they are deep: on an H100 SiLU alone took 16 us behind the library's 11 for 320
// channels to 1280 at 7x7, batch 128, which take 25 here; deeper ones with a function were not measured. A result's way
// through memory costs 2 ps, a product 6 fs here and at best 3 there, so that the library is ahead from some 600 of
// them on. So do those whose average is computed here, while they are not large: on an H200 512 channels to 2048 at 7x7
// and their average took 15.7 us at batch 32 and 44 at 128 with the library's convolution, 13.6 and 74 here.
bool is_the_librarys(const NodeSpec& spec) {
  constexpr double kFewBlocks = 0.7;  // of the time of all of them
  constexpr std::int64_t kDeep = 600;
  constexpr std::int64_t kLargeAverage = 3'000'000'000;  // multiply-accumulates
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  if (std::isfinite(attributes.activation.high)) return false;
  if (attributes.groups > 1) return has_library_groups(attributes.groups, spec.inputs[0]->shape[1]);
  const Shape& y = spec.outputs[0].shape;
  const std::int64_t macs = layer_as<Conv>(spec.layer).work(spec.inputs, spec.outputs).macs;
  if (spec.next != nullptr && attributes.window.taps() * spec.inputs[0]->shape[1] < kDeep &&
      fuses_epilogue(spec, *spec.next) &&
      (macs < kLargeAverage || !cuda::average_follows(spec, shape_of(spec))))
    return false;
  if (macs < least_library_macs(attributes.window, spec.inputs[0]->shape[1], y[1], y.elements() / y[1]))
    return false;
  return cuda::kept_cost(shape_of(spec), spec.gpu) > kFewBlocks;
}

}  // namespace

void register_cuda_conv_implicit_gemm(Registry& registry) {
  Candidate candidate{"implicit_gemm", refuse_implicit_gemm,
                      [](const NodeSpec& spec) { return std::make_unique<ImplicitGemm>(spec); },
                      variant_names, yields_where_accepted(refuse_implicit_gemm, is_the_librarys)};
  candidate.kept_share = [](const NodeSpec& spec) { return cuda::kept_share(spec, shape_of(spec)); };
  candidate.fuses_epilogue = fuses_epilogue;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
