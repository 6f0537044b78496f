#include <fmt/format.h>

#include <limits>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/depthwise/plan.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

Refusal refuse_window(const Window& w) {
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (w.kernel[0] != w.kernel[1] || w.kernel[0] < 3 || w.kernel[0] > 7 || w.kernel[0] % 2 == 0)
    return fmt::format("the window is {}x{}; 3x3, 5x5 and 7x7 are handled", w.kernel[0], w.kernel[1]);
  if (w.stride[0] != w.stride[1] || w.stride[0] > 2)
    return fmt::format("the strides are {} and {}; 1 and 1, 2 and 2 are handled", w.stride[0], w.stride[1]);
  if (w.dilation[0] != 1 || w.dilation[1] != 1) return "dilation is not handled";
  return std::nullopt;
}

/// Why kernels whose threads slide down rows do not compute the node: element types are left to the caller.
Refusal refuse_sliding_depthwise(const NodeSpec& spec, const ConvAttributes& attributes) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (y.elements() == 0) return "empty tensors are not handled";
  const std::int64_t channels = x.shape[1];
  if (attributes.groups != channels || y.shape[1] != channels)
    return "not a depthwise convolution with one output per channel";
  if (channels % 4 != 0) return fmt::format("{} channels; multiples of 4 are handled", channels);
  if (Refusal reason = refuse_window(w)) return reason;
  if (spec.has_input(3)) return "a residual is not added";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  // Positions and threads, of two results at least, are counted in 32 bits.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (x.elements() / x.shape[0] > kLimit || y.elements() > kLimit * 2 || w.pad_begin[0] > kLimit / 4 ||
      w.pad_begin[1] > kLimit / 4)
    return "the tensors are too large for 32-bit offsets";
  return std::nullopt;
}

/// The geometry without what a thread computes.
DepthwiseGeometry depthwise_geometry(const NodeSpec& spec, const Window& window) {
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  DepthwiseGeometry g;
  g.batch = narrow(x[0]), g.channels = narrow(x[1]);
  g.in_h = narrow(x[2]), g.in_w = narrow(x[3]);
  g.out_h = narrow(y[2]), g.out_w = narrow(y[3]);
  g.pad_h = narrow(window.pad_begin[0]), g.pad_w = narrow(window.pad_begin[1]);
  g.window = narrow(window.kernel[0]), g.stride = narrow(window.stride[0]);
  return g;
}

// Candidate "depthwise_quads" of Conv: the depthwise convolutions of networks in fp16 and bf16.

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<Conv>(spec.layer).attributes();
}

Refusal refuse_depthwise_quads(const NodeSpec& spec) {
  if (!is_stored_float(spec.inputs[0]->dtype) || spec.outputs[0].dtype != spec.inputs[0]->dtype)
    return "only f16 and bf16 are handled";
  return refuse_sliding_depthwise(spec, attributes_of(spec));
}

class ConvDepthwise final : public PackedKernel {
 public:
  explicit ConvDepthwise(const NodeSpec& spec) {
    const ConvAttributes& a = attributes_of(spec);
    static_cast<DepthwiseGeometry&>(args_) = depthwise_geometry(spec, a.window);
    const auto channels = static_cast<std::size_t>(args_.channels);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::span<const float> from = plain.values<float>();
    const std::size_t taps = from.size() / channels;
    std::vector<float> weights(from.size());
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t t = 0; t < taps; ++t) weights[t * channels + c] = from[c * taps + t];
    }
    args_.bf16 = spec.inputs[0]->dtype == DType::bf16;
    args_.weights = keep(weights);
    args_.bias = keep(conv_biases(spec));
    args_.low = a.activation.low;
    args_.high = a.activation.high;
    args_.function = follower_function(spec);
    PIPIT_CUDA(prepare_conv_depthwise_quads(args_, overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ConvDepthwiseArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_conv_depthwise_quads(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  ConvDepthwiseArgs args_;
  bool overlap_ = false;
};

// Candidate "depthwise_quads" of QConv: the depthwise convolutions of networks, and the function of their results.

const QConvAttributes& attributes_of_int8(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_depthwise_quads_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_sliding_depthwise(spec, attributes_of_int8(spec).conv)) return reason;
  if (spec.inputs[0]->dtype == DType::f32) return "x is f32";
  return std::nullopt;
}

/// QDepthwiseArgs::table.
std::optional<ByteTable> table_of(const NodeSpec& spec) {
  const std::optional<ByteTable> follower = follower_table(spec);
  const Quantization& y = attributes_of_int8(spec).y;
  if (!follower && (!y.quantized() || y.zero_point == 0)) return std::nullopt;
  ByteTable table{};
  for (std::size_t step = 0; step < table.size(); ++step) {
    const auto byte = static_cast<std::uint8_t>(step + static_cast<unsigned>(y.zero_point));
    table[step] = follower ? (*follower)[byte] : byte;
  }
  return table;
}

class QDepthwise final : public PackedKernel {
 public:
  explicit QDepthwise(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of_int8(spec);
    static_cast<DepthwiseGeometry&>(args_) = depthwise_geometry(spec, a.conv.window);
    const IntegerOperand operand(a.x);
    args_.flip = operand.flip;
    args_.padding = static_cast<std::uint8_t>(a.x.zero_point) * 0x01010101U;
    set_constants(spec, operand.zero_point);
    const StepBounds bounds = output_bounds(a.y, a.conv.activation);
    args_.low = bounds.low;
    args_.high = bounds.high;
    if (attributes_of_int8(spec).y.quantized()) args_.whole_bounds = PairBounds::of(bounds);
    args_.stored = a.y.quantized() ? StoredType::i8 : stored_type(spec.outputs[0].dtype);
    args_.table = keep(table_of(spec));
    PIPIT_CUDA(prepare_qconv_depthwise(args_, overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    QDepthwiseArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_qconv_depthwise_quads(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  void set_constants(const NodeSpec& spec, int zero_point) {
    const auto channels = static_cast<std::size_t>(args_.channels);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto weights = plain.values<std::int8_t>();
    std::vector<std::int32_t> bias = qconv_biases(spec);
    // Padding holds the zero point, so every tap counts: what x's bytes are more than its integers goes off the bias.
    const std::size_t taps = weights.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      int sum = 0;
      for (const std::int8_t w : weights.subspan(c * taps, taps)) sum += w;
      bias[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias[c]) -
                                          static_cast<std::uint32_t>(zero_point * sum));
    }
    args_.small = most_of_int8(spec, weights, bias).is_small();
    args_.weights = keep(pack_depthwise(weights, channels, args_.window));
    args_.bias = keep(bias);
    args_.multipliers = keep(requantization_multipliers(attributes_of_int8(spec), args_.channels));
  }

  QDepthwiseArgs args_;
  bool overlap_ = false;
};

}  // namespace

void register_cuda_depthwise_quads(Registry& registry) {
  const auto estimate = [](const NodeSpec& spec) {
    return estimate_of("depthwise_quads f16", plain_terms(spec, attributes_of(spec).window));
  };
  registry.add(
      Conv::kType, DeviceKind::cuda,
      conv_candidate<ConvDepthwise>("depthwise_quads", refuse_depthwise_quads, estimate, fuses_function));
  const auto estimate_int8 = [](const NodeSpec& spec) {
    return estimate_of("depthwise_quads i8", plain_terms(spec, attributes_of_int8(spec).conv.window));
  };
  registry.add(
      QConv::kType, DeviceKind::cuda,
      conv_candidate<QDepthwise>("depthwise_quads", refuse_depthwise_quads_int8, estimate_int8, fuses_table));
}

}  // namespace pipit::internal
