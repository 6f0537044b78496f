// Candidate "stem": the first convolution of a network, fp16, on an image of up to four channels. Reads the user's f32
// image itself.
#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/conv.h"
#include "layers/cuda/conv_stem_launch.h"
#include "layers/cuda/families.h"
#include "layers/layer_kernel.h"

namespace pipit {

namespace {

using cuda::ConvShape;
using cuda::DeviceBuffer;
using cuda::StemArgs;

StemArgs args_of(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const Window& w = attributes.window;
  const TensorDesc& x = *spec.inputs[0];
  const Shape& y = spec.outputs[0].shape;
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  ConvShape s;
  s.batch = narrow(x.shape[0]), s.in_c = narrow(x.shape[1]);
  s.in_h = narrow(x.shape[2]), s.in_w = narrow(x.shape[3]);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  s.pad_h = narrow(w.pad_begin[0]), s.pad_w = narrow(w.pad_begin[1]);
  StemArgs args = cuda::stem_args(s);
  const Strides strides = x.strides();
  args.x_half = x.dtype == DType::f16;
  args.x_image = strides[0];
  args.x_channel = narrow(strides[1]), args.x_row = narrow(strides[2]), args.x_pixel = narrow(strides[3]);
  args.low = attributes.activation.low;
  args.high = attributes.activation.high;
  return args;
}

Refusal refuse_stem(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (spec.precision != Precision::fp16 || (x.dtype != DType::f16 && x.dtype != DType::f32) ||
      y.dtype != DType::f16)
    return "only fp16 is handled";
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  if (x.shape[1] > cuda::kStemMaxChannels)
    return fmt::format("{} channels; at most {} are handled", x.shape[1], cuda::kStemMaxChannels);
  if (spec.has_input(3)) return "a residual is not handled";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() > kLimit || y.elements() / y.shape[1] > kLimit || y.shape[1] > kLimit / 4096)
    return "the tensors are too large for 32-bit offsets";
  for (std::size_t i = 0; i < 2; ++i) {
    constexpr std::int64_t kWidest = 1024;  // beyond, no window fits the shared memory
    if (w.span(static_cast<int>(i)) > kWidest || w.stride[i] > kWidest || w.pad_begin[i] > kLimit / 4 ||
        w.pad_end[i] > kLimit / 4)
      return "the window is too large for the shared memory";
  }
  const std::size_t shared = args_of(spec).shared_bytes;
  if (shared > cuda::kStemMaxShared)
    return fmt::format("weights and pixels of a tile need {} bytes of shared memory; at most {} are taken",
                       shared, cuda::kStemMaxShared);
  return std::nullopt;
}

class Stem final : public Kernel {
 public:
  explicit Stem(const NodeSpec& spec) : args_(args_of(spec)) {
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<Half> packed = cuda::pack_stem_weights(args_, weights.values<float>().data());
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof(Half));
    const std::int64_t outputs = args_.shape.out_c;
    std::vector<float> bias(static_cast<std::size_t>(cuda::ceil_div(outputs, args_.width) * args_.width));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), outputs, bias.begin());
    }
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.as<const Half>();
    args_.bias = bias_.as<const float>();
    PIPIT_CUDA(cuda::prepare_stem(args_, resident_blocks_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    StemArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].as<Half>();
    PIPIT_CUDA(cuda::launch_stem(args, resident_blocks_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  StemArgs args_;
  int resident_blocks_ = 1;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

}  // namespace

void register_cuda_conv_stem(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cuda, {"stem", refuse_stem, [](const NodeSpec& spec) {
                                                 return std::unique_ptr<Kernel>(std::make_unique<Stem>(spec));
                                               }});
}

}  // namespace pipit
