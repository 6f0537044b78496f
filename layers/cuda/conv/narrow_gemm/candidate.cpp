// Candidate "narrow_gemm" of QConv: 1x1 convolutions of few channels, as before and after the depthwise ones of
// mobile networks, and small windows of the user's image, as in their first layer.
#include <fmt/format.h>

#include <limits>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/narrow_gemm/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

/// Whether the user's image is read, which is quantized meanwhile.
bool has_window(const NodeSpec& spec) {
  return spec.inputs[0]->dtype == DType::f32;
}

NarrowShape shape_of(const NodeSpec& spec) {
  return {has_window(spec) ? kNarrowWindowBytes : static_cast<int>(spec.inputs[0]->shape[1]),
          static_cast<int>(spec.outputs[0].shape[1])};
}

Refusal refuse_rows(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const Window& w = attributes_of(spec).conv.window;
  if (w.taps() != 1 || w.stride[0] != 1 || w.stride[1] != 1)
    return "of bytes only 1x1 of stride 1 is handled";
  if (w.pad_begin[0] + w.pad_begin[1] + w.pad_end[0] + w.pad_end[1] != 0) return "there is padding";
  if (x.dtype != DType::i8 || !is_channels_last(x)) return "x is neither f32 nor i8 in channels_last";
  if (x.shape[1] > kNarrowMaxChannels)
    return fmt::format("{} channels; at most {} are handled", x.shape[1], kNarrowMaxChannels);
  if (x.shape[1] % 8 != 0) return "channels must be a multiple of 8";
  return std::nullopt;
}

Refusal refuse_window(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const QConvAttributes& a = attributes_of(spec);
  const Window& w = a.conv.window;
  if (w.kernel[0] > kNarrowWindow || w.kernel[1] > kNarrowWindow || w.dilation[0] != 1 || w.dilation[1] != 1)
    return "of an image only windows of up to 3x3 are handled";
  if (x.shape[1] > kNarrowWindowChannels)
    return fmt::format("an image of {} channels; at most {} are handled", x.shape[1], kNarrowWindowChannels);
  if (spec.has_input(3)) return "nothing is added to convolutions of an image";
  if (!ImageScale::takes(a.x.scale))
    return fmt::format("the image's scale is {:g}; 2^-60 to 2^60 are handled", a.x.scale);
  // Offsets into the image, and of a window beyond its borders, are 32-bit.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 4, kFarthest = 1024;
  for (const std::size_t axis : {0, 1}) {
    if (w.stride[axis] > kFarthest || w.pad_begin[axis] > kFarthest)
      return fmt::format("strides and padding above {} are not handled", kFarthest);
  }
  if (x.elements() > kLimit) return "the image is too large for 32-bit offsets";
  return std::nullopt;
}

Refusal refuse(const NodeSpec& spec) {
  const QConvAttributes& a = attributes_of(spec);
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (a.conv.window.rank != 2 || a.conv.groups != 1)
    return "only two spatial dimensions and groups 1 are handled";
  if (!is_symmetric_i8(a.x)) return "x is not i8 with zero point 0";
  if (!is_symmetric_i8(a.y) || y.dtype != DType::i8) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !is_symmetric_i8(a.residual)) return "the residual is not i8 with zero point 0";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y) || (spec.has_input(3) && !is_channels_last(*spec.inputs[3])))
    return "y and the residual must be channels_last";
  if (x.elements() == 0 || y.elements() == 0) return "empty tensors are not handled";
  if (Refusal reason = has_window(spec) ? refuse_window(spec) : refuse_rows(spec)) return reason;
  if (y.shape[1] % 8 != 0) return "outputs must be a multiple of 8";
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (y.elements() / y.shape[1] > kLimit || y.shape[1] > kNarrowMaxShared ||
      shape_of(spec).shared_bytes() > kNarrowMaxShared)
    return fmt::format("more than {} bytes of weights, or {} positions, are not handled", kNarrowMaxShared,
                       kLimit);
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  if (!most_of_int8(spec, weights.values<std::int8_t>(), qconv_biases(spec)).is_small())
    return "only sums below 2^22 and results below 2^15 steps are handled";
  return std::nullopt;
}

std::int64_t positions_of(const NodeSpec& spec) {
  return spec.outputs[0].elements() / spec.outputs[0].shape[1];
}

Estimate estimate(const NodeSpec& spec) {
  const NarrowShape shape = shape_of(spec);
  const double processors = processors_of(spec.gpu);
  LaunchTerms terms;
  terms.steps = shape.steps();
  terms.rounds = shape.pairs();
  terms.blocks = static_cast<double>(positions_of(spec)) * shape.pairs() / (64 * processors);
  terms.megabytes = operand_megabytes(spec);
  return estimate_of(has_window(spec) ? "narrow_gemm i8 image" : "narrow_gemm i8", terms);
}

class QNarrowGemm final : public PackedKernel {
 public:
  explicit QNarrowGemm(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    args_.shape = shape_of(spec);
    args_.adds = spec.has_input(3);
    args_.positions = static_cast<int>(positions_of(spec));
    args_.packed_bytes = args_.shape.shared_bytes();
    const StepBounds bounds = output_bounds(a.y, a.conv.activation);
    args_.bounds = PairBounds::of(bounds);
    args_.relu = bounds.low == 0;
    args_.residual_scale = residual_factor(a);
    std::vector<std::int32_t> bias = qconv_biases(spec);
    for (std::int32_t& b : bias) b += kMagicBits;
    const Tensor given = to_layout(spec.constant(1)->view(), Layout::row_major);
    std::span<const std::int8_t> weights = given.values<std::int8_t>();
    std::vector<std::int8_t> of_windows;
    if (has_window(spec)) {
      args_.from = NarrowFrom::window;
      describe_window(spec);
      const Window& w = a.conv.window;
      of_windows = narrow_window_weights(weights, args_.shape.outputs, args_.window.channels,
                                         static_cast<int>(w.kernel[0]), static_cast<int>(w.kernel[1]));
      weights = of_windows;
    }
    args_.packed =
        keep(pack_narrow(args_.shape, weights, bias, requantization_multipliers(a, args_.shape.outputs)));
    args_.table = keep(follower_table(spec));
    PIPIT_CUDA(prepare_narrow_gemm(args_, blocks_, overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    NarrowArgs args = args_;
    if (args.from == NarrowFrom::window) {
      args.window.x = inputs[0].as<float>();
    } else {
      args.x = inputs[0].as<std::int8_t>();
    }
    args.residual = optional_data<std::int8_t>(inputs, 3);
    args.y = outputs[0].as<std::int8_t>();
    PIPIT_CUDA(launch_narrow_gemm(args, blocks_, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  void describe_window(const NodeSpec& spec) {
    const TensorDesc& x = *spec.inputs[0];
    const Shape& y = spec.outputs[0].shape;
    const Window& w = attributes_of(spec).conv.window;
    const Strides strides = x.strides();
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    NarrowWindow& to = args_.window;
    to.channels = narrow(x.shape[1]), to.in_h = narrow(x.shape[2]), to.in_w = narrow(x.shape[3]);
    to.stride_h = narrow(w.stride[0]), to.stride_w = narrow(w.stride[1]);
    to.pad_h = narrow(w.pad_begin[0]), to.pad_w = narrow(w.pad_begin[1]);
    to.x_image = narrow(strides[0]), to.x_channel = narrow(strides[1]);
    to.x_row = narrow(strides[2]), to.x_pixel = narrow(strides[3]);
    to.positions = Divisor(narrow(y[2] * y[3])), to.out_width = Divisor(narrow(y[3]));
    to.scale = ImageScale(attributes_of(spec).x.scale);
  }

  NarrowArgs args_;
  int blocks_ = 1;
  bool overlap_ = false;
};

}  // namespace

void register_cuda_qconv_narrow(Registry& registry) {
  const auto fuses = [](const NodeSpec& spec, const NodeSpec& next) {
    return !spec.has_input(3) && fuses_table(spec, next);
  };
  registry.add(QConv::kType, DeviceKind::cuda,
               conv_candidate<QNarrowGemm>("narrow_gemm", refuse, estimate, fuses));
}

}  // namespace pipit::internal
