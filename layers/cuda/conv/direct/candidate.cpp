#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/direct/launch.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

/// Refuses outputs and windows that do not fit 32-bit coordinates or one launch.
Refusal refuse_wide_window(const NodeSpec& spec, const Window& window) {
  // Coordinates are 32-bit and one launch has less than 2^31 blocks of 128 threads.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (spec.outputs[0].elements() > kLimit * 64) return "the output is too large for one launch";
  for (int axis = 0; axis < window.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (spec.inputs[0]->shape[axis + 2] + window.span(axis) + window.pad_begin[i] + window.pad_end[i] >
        kLimit / 8)
      return "the window is too large for 32-bit coordinates";
  }
  return std::nullopt;
}

ImageStrides strides_of(const TensorDesc& desc) {
  const Image image(desc);
  return {image.batch_stride, image.channel_stride, image.stride[0], image.stride[1], image.stride[2]};
}

/// Strides of a desc whose layouts coincide may differ; the kernels want channel stride 1.
ImageStrides channels_last_strides(TensorDesc desc) {
  desc.layout = Layout::channels_last;
  return strides_of(desc);
}

/// The geometry and strides; pointers and activation are left to the caller.
DirectConvArgs direct_conv_geometry(const NodeSpec& spec, const ConvAttributes& attributes) {
  const Window window = as_3d(attributes.window);
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  DirectConvArgs a;
  a.x_strides = strides_of(*spec.inputs[0]);
  a.y_strides = strides_of(spec.outputs[0]);
  if (spec.has_input(3)) a.residual_strides = strides_of(*spec.inputs[3]);
  a.batch = x.batch;
  a.groups = static_cast<int>(attributes.groups);
  a.group_in = static_cast<int>(x.channels / attributes.groups);
  a.group_out = static_cast<int>(y.channels / attributes.groups);
  for (std::size_t i = 0; i < 3; ++i) {
    a.in[i] = static_cast<int>(x.extent[i]);
    a.out[i] = static_cast<int>(y.extent[i]);
    a.kernel[i] = static_cast<int>(window.kernel[i]);
    a.stride[i] = static_cast<int>(window.stride[i]);
    a.dilation[i] = static_cast<int>(window.dilation[i]);
    a.pad[i] = static_cast<int>(window.pad_begin[i]);
  }
  return a;
}

// Candidates "depthwise" and "direct": convolutions in fp32 arithmetic, stored as f32, f16 or bf16. "direct" also takes
// weights and biases that are computed at run time.

bool at_run_time(const NodeSpec& spec, std::size_t input) {
  return spec.has_input(input) && spec.constant(input) == nullptr;
}

Refusal refuse_direct(const NodeSpec& spec) {
  const DType type = spec.inputs[0]->dtype;
  if (spec.precision == Precision::int8 || (type != DType::f32 && !is_stored_float(type)))
    return "only f32, f16 and bf16 are handled";
  if (spec.outputs[0].dtype != type || (spec.has_input(3) && spec.inputs[3]->dtype != type))
    return "input, residual and output must have one element type";
  for (const std::size_t input : {std::size_t{1}, std::size_t{2}}) {
    if (at_run_time(spec, input) && spec.inputs[input]->dtype != type)
      return "weights and bias that are computed at run time must be stored as the input is";
  }
  if (spec.outputs[0].elements() == 0) return "empty tensors are not handled";
  return refuse_wide_window(spec, layer_as<Conv>(spec.layer).attributes().window);
}

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_direct(spec)) return reason;
  if (at_run_time(spec, 1) || at_run_time(spec, 2)) return "weights or bias are computed at run time";
  const std::int64_t channels = spec.inputs[0]->shape[1];
  if (layer_as<Conv>(spec.layer).attributes().groups != channels || spec.outputs[0].shape[1] != channels ||
      channels == 1)
    return "not a depthwise convolution with one output per channel";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

DirectConvArgs args_of(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  DirectConvArgs a = direct_conv_geometry(spec, attributes);
  a.low = attributes.activation.low;
  a.high = attributes.activation.high;
  return a;
}

/// Packs weights [O, group_in, taps] as [group][tap][group_in / together][width][together], o = group * group_out +
/// column.
template <typename T>
std::vector<T> pack_weights(const DirectConvArgs& a, std::span<const T> from, int together) {
  const std::int64_t width = (a.group_out + 3) / 4 * 4;
  const std::int64_t taps = static_cast<std::int64_t>(a.kernel[0]) * a.kernel[1] * a.kernel[2];
  std::vector<T> packed(static_cast<std::size_t>(a.groups * taps * a.group_in * width));
  for (std::int64_t g = 0; g < a.groups; ++g) {
    for (std::int64_t o = 0; o < a.group_out; ++o) {
      for (std::int64_t c = 0; c < a.group_in; ++c) {
        for (std::int64_t t = 0; t < taps; ++t) {
          const std::int64_t block = (g * taps + t) * (a.group_in / together) + c / together;
          packed[static_cast<std::size_t>((block * width + o) * together + c % together)] =
              from[static_cast<std::size_t>(((g * a.group_out + o) * a.group_in + c) * taps + t)];
        }
      }
    }
  }
  return packed;
}

/// Weights [C, 1, taps] as [taps][C].
template <typename T>
std::vector<T> pack_depthwise(std::span<const T> from, std::size_t channels) {
  const std::size_t taps = from.size() / channels;
  std::vector<T> packed(from.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t t = 0; t < taps; ++t) packed[t * channels + c] = from[c * taps + t];
  }
  return packed;
}

template <bool Depthwise>
class DirectConv final : public PackedKernel {
 public:
  explicit DirectConv(const NodeSpec& spec) : args_(args_of(spec)), type_(spec.inputs[0]->dtype) {
    if constexpr (Depthwise) {
      args_.x_strides = channels_last_strides(*spec.inputs[0]);
      args_.y_strides = channels_last_strides(spec.outputs[0]);
      if (spec.has_input(3)) args_.residual_strides = channels_last_strides(*spec.inputs[3]);
      const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
      args_.weights = keep(pack_depthwise(plain.values<float>(), static_cast<std::size_t>(args_.groups)));
    } else {
      if (is_channels_last(*spec.inputs[0])) args_.x_strides = channels_last_strides(*spec.inputs[0]);
      // With channels innermost every other stride is a multiple of the channel count.
      wide_ =
          is_channels_last(*spec.inputs[0]) && spec.inputs[0]->shape[1] % 4 == 0 && args_.group_in % 4 == 0;
      if (at_run_time(spec, 1)) {
        weight_strides_ = strides_of(*spec.inputs[1]);
        scratch_weights_ = packed_weights(args_);
      } else {
        const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
        args_.weights = keep(pack_weights(args_, plain.values<float>(), 1));
      }
    }
    if (at_run_time(spec, 2)) {
      scratch_biases_ = args_.groups * args_.group_out;
    } else {
      args_.bias = keep(conv_biases(spec));
    }
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(scratch_weights_ + scratch_biases_) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    DirectConvArgs args = args_;
    args.x = inputs[0].data;
    args.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.y = outputs[0].data;
    if constexpr (Depthwise) {
      PIPIT_CUDA(launch_conv_depthwise(args, type_, stream));
    } else {
      // Packed weights are a multiple of 4 elements, so that what follows them is aligned, too.
      auto* weights = reinterpret_cast<float*>(context.scratch);
      float* bias = weights + scratch_weights_;
      if (scratch_weights_ > 0) {
        PIPIT_CUDA(pack_direct_weights(args_, inputs[1].data, weight_strides_, type_, weights, stream));
        args.weights = weights;
      }
      if (scratch_biases_ > 0) {
        PIPIT_CUDA(pack_direct_biases(inputs[2].data, scratch_biases_, type_, bias, stream));
        args.bias = bias;
      }
      PIPIT_CUDA(launch_conv_direct(args, type_, wide_, stream));
    }
  }

 private:
  DirectConvArgs args_;
  ImageStrides weight_strides_;
  std::int64_t scratch_weights_ = 0, scratch_biases_ = 0;  // elements, of those that are computed at run time
  DType type_;
  bool wide_ = false;
};

template <bool Depthwise>
Estimate estimate(const NodeSpec& spec) {
  return estimate_of(fmt::format("{} {}", Depthwise ? "depthwise" : "direct",
                                 is_stored_float(spec.outputs[0].dtype) ? "f16" : "f32"),
                     plain_terms(spec, layer_as<Conv>(spec.layer).attributes().window));
}

// Candidates "depthwise" and "direct" of QConv: INT8 convolutions without matrix units. "direct" takes everything.

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_direct_int8(const NodeSpec& spec) {
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (spec.outputs[0].elements() == 0) return "empty tensors are not handled";
  // Threads, of one output at least each, are counted in 32 bits.
  if (spec.outputs[0].elements() > (std::int64_t{1} << 32) - 1024)
    return "the output has 2^32 elements or more";
  return refuse_wide_window(spec, attributes_of(spec).conv.window);
}

Refusal refuse_depthwise_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_direct_int8(spec)) return reason;
  const std::int64_t channels = spec.inputs[0]->shape[1];
  if (attributes_of(spec).conv.groups != channels || spec.outputs[0].shape[1] != channels || channels == 1)
    return "not a depthwise convolution with one output per channel";
  if (spec.inputs[0]->dtype == DType::f32) return "x is f32";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

template <bool Depthwise>
class QDirectConv final : public PackedKernel {
 public:
  explicit QDirectConv(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    DirectConvArgs& conv = args_.conv;
    conv = direct_conv_geometry(spec, a.conv);
    const StepBounds bounds = output_bounds(a.y, a.conv.activation);
    conv.low = bounds.low;
    conv.high = bounds.high;
    args_.x = IntegerOperand(a.x);
    args_.residual = IntegerOperand(a.residual);
    args_.y = stored_type(spec.outputs[0].dtype);
    args_.y_zero_point = a.y.zero_point;
    args_.residual_scale = residual_factor(a);
    const bool real = spec.inputs[0]->dtype == DType::f32;
    if (real) args_.x_scale = a.x.scale, args_.x_bounds = step_bounds(a.x, -INFINITY, INFINITY);
    if (is_channels_last(*spec.inputs[0])) conv.x_strides = channels_last_strides(*spec.inputs[0]);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto weights = plain.values<std::int8_t>();
    if constexpr (Depthwise) {
      conv.y_strides = channels_last_strides(spec.outputs[0]);
      if (spec.has_input(3)) conv.residual_strides = channels_last_strides(*spec.inputs[3]);
      args_.weights = keep(pack_depthwise(weights, static_cast<std::size_t>(conv.groups)));
    } else {
      // With channels innermost every other stride is a multiple of the channel count.
      wide_ = !real && is_channels_last(*spec.inputs[0]) && spec.inputs[0]->shape[1] % 4 == 0 &&
              conv.group_in % 4 == 0;
      args_.weights = keep(pack_weights(conv, weights, wide_ ? 4 : 1));
    }
    args_.bias = keep(qconv_biases(spec));
    args_.multipliers = keep(requantization_multipliers(a, spec.outputs[0].shape[1]));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    QDirectConvArgs args = args_;
    args.conv.x = inputs[0].data;
    args.conv.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.conv.y = outputs[0].data;
    if constexpr (Depthwise) {
      PIPIT_CUDA(launch_qconv_depthwise(args, stream));
    } else {
      PIPIT_CUDA(launch_qconv_direct(args, wide_, stream));
    }
  }

 private:
  QDirectConvArgs args_;
  bool wide_ = false;
};

template <bool Depthwise>
Estimate estimate_int8(const NodeSpec& spec) {
  return estimate_of(Depthwise ? "depthwise i8" : "direct i8",
                     plain_terms(spec, layer_as<QConv>(spec.layer).attributes().conv.window));
}

}  // namespace

void register_cuda_depthwise(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cuda,
               conv_candidate<DirectConv<true>>("depthwise", refuse_depthwise, estimate<true>));
  registry.add(QConv::kType, DeviceKind::cuda,
               conv_candidate<QDirectConv<true>>("depthwise", refuse_depthwise_int8, estimate_int8<true>));
}

void register_cuda_direct(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cuda,
               conv_candidate<DirectConv<false>>("direct", refuse_direct, estimate<false>));
  registry.add(QConv::kType, DeviceKind::cuda,
               conv_candidate<QDirectConv<false>>("direct", refuse_direct_int8, estimate_int8<false>));
}

}  // namespace pipit::internal
