// Candidate "implicit_gemm": fp16 convolution on the tensor cores without a patch matrix.
#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/conv.h"
#include "layers/cuda/conv_gemm_launch.h"
#include "layers/cuda/families.h"
#include "layers/layer_kernel.h"

namespace pipit {

namespace {

using cuda::ConvGemmArgs;
using cuda::ConvShape;
using cuda::ConvTile;
using cuda::ConvVariant;
using cuda::DeviceBuffer;

/// Channels as the kernel reads them: 8-byte copies for narrow images, else 16-byte copies.
std::int64_t padded_channels(std::int64_t channels) {
  return channels <= 4 ? 4 : cuda::ceil_div(channels, 8) * 8;
}

Refusal refuse_implicit_gemm(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  // An f32 image is converted while its channels are padded.
  if (spec.precision != Precision::fp16 || (x.dtype != DType::f16 && x.dtype != DType::f32) ||
      y.dtype != DType::f16)
    return "only fp16 is handled";
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && (!is_channels_last(*spec.inputs[3]) || spec.inputs[3]->dtype != DType::f16))
    return "the residual must be channels_last and f16";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  // Offsets into x are 32-bit, and taps reach one window beyond its borders.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  const std::int64_t channels = padded_channels(x.shape[1]);
  if (x.elements() / x.shape[1] > kLimit / channels || y.elements() / y.shape[1] > kLimit)
    return "the tensors are too large for 32-bit offsets";
  const std::int64_t high = x.shape[2] + w.span(0) + w.pad_begin[0] + w.pad_end[0];
  const std::int64_t wide = x.shape[3] + w.span(1) + w.pad_begin[1] + w.pad_end[1];
  if (high > 32768 || wide > 32768 || high * wide > kLimit / channels || w.taps() > kLimit / channels)
    return "the window is too large for 32-bit offsets";
  return std::nullopt;
}

ConvShape shape_of(const NodeSpec& spec) {
  const Window& w = layer_as<Conv>(spec.layer).attributes().window;
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  ConvShape s;
  s.batch = narrow(x[0]), s.in_h = narrow(x[2]), s.in_w = narrow(x[3]);
  s.in_c = narrow(padded_channels(x[1]));
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  s.pad_h = narrow(w.pad_begin[0]), s.pad_w = narrow(w.pad_begin[1]);
  return s;
}

int processors_of(int gpu) {
  int processors = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu));
  return processors;
}

bool has_clusters() {
  bool result = false;
  PIPIT_CUDA(cuda::conv_gemm_has_clusters(result));
  return result;
}

std::vector<ConvVariant> variants_of(const ConvShape& shape, int gpu) {
  const int processors = processors_of(gpu);
  const bool clusters = has_clusters();
  if (shape.in_c != 4) return cuda::conv_variants(shape, processors, clusters);
  const ConvTile narrow{128, 64, 1};  // the one tile that reads narrow pixels
  const bool pays = clusters && cuda::pays_to_overlap(shape, narrow, processors);
  std::vector<ConvVariant> variants{{narrow, pays}};
  if (clusters) variants.push_back({narrow, !pays});
  return variants;
}

// The node's own variant, or the best by estimate.
ConvVariant variant_for(const ConvShape& shape, const NodeSpec& spec) {
  const std::vector<ConvVariant> variants = variants_of(shape, spec.gpu);
  if (spec.variant.empty()) return variants.front();
  for (const ConvVariant& variant : variants) {
    if (variant.name() == spec.variant) return variant;
  }
  fail("there is no variant '{}'", spec.variant);
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  std::vector<std::string> names;
  for (const ConvVariant& variant : variants_of(shape_of(spec), spec.gpu)) names.push_back(variant.name());
  return names;
}

class ImplicitGemm final : public Kernel {
 public:
  explicit ImplicitGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)),
        channels_(static_cast<int>(spec.inputs[0]->shape[1])),
        vector_(shape_.in_c == 4 ? 4 : 8),
        copies_(shape_.in_c != channels_ || !is_channels_last(*spec.inputs[0]) ||
                spec.inputs[0]->dtype != DType::f16),
        variant_(variant_for(shape_, spec)),
        tile_(variant_.tile) {
    const Clamp& clamp = layer_as<Conv>(spec.layer).attributes().activation;
    args_ = cuda::conv_gemm_args(shape_, tile_);
    args_.overlap = variant_.overlap;
    args_.low = clamp.low;
    args_.high = clamp.high;
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<Half> packed =
        cuda::pack_conv_weights(shape_, channels_, weights.values<float>().data(), tile_.columns);
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof(Half));
    std::vector<float> bias(static_cast<std::size_t>(args_.column_tiles) *
                            static_cast<std::size_t>(tile_.columns));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), shape_.out_c, bias.begin());
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.as<const Half>();
    args_.bias = bias_.as<const float>();
    PIPIT_CUDA(cuda::prepare_conv_gemm(tile_, vector_));
  }

  std::size_t scratch_bytes() const override {
    return copies_ ? static_cast<std::size_t>(pixels() * shape_.in_c) * sizeof(Half) : 0;
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    if (!copies_) args.x = inputs[0].as<Half>();
    if (copies_) args.x = copy_input(inputs[0], reinterpret_cast<Half*>(context.scratch), stream);
    args.residual = optional_data<Half>(inputs, 3);
    args.y = outputs[0].as<Half>();
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
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

// Long convolutions are the library's: on an H200 its kernels took 0.5 to 1.0 times as long from here on, while short
// ones start faster here, and without the time that a library's plan takes to build.
bool is_long(const NodeSpec& spec) {
  constexpr std::int64_t kLongMacs = 500'000'000;
  return layer_as<Conv>(spec.layer).work(spec.inputs, spec.outputs).macs >= kLongMacs;
}

}  // namespace

void register_cuda_conv_implicit_gemm(Registry& registry) {
  registry.add(
      Conv::kType, DeviceKind::cuda,
      {"implicit_gemm", refuse_implicit_gemm,
       [](const NodeSpec& spec) { return std::make_unique<ImplicitGemm>(spec); }, variant_names, is_long});
}

}  // namespace pipit
