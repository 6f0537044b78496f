// Candidates "depthwise" and "direct" of QConv: INT8 convolutions without matrix units. "direct" takes everything.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_direct_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_direct_launch.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::DirectConvArgs;
using cuda::QDirectConvArgs;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_direct(const NodeSpec& spec) {
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (spec.outputs[0].elements() == 0) return "empty tensors are not handled";
  // Threads, of one output at least each, are counted in 32 bits.
  if (spec.outputs[0].elements() > (std::int64_t{1} << 32) - 1024)
    return "the output has 2^32 elements or more";
  return cuda::refuse_wide_window(spec, attributes_of(spec).conv.window);
}

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_direct(spec)) return reason;
  const std::int64_t channels = spec.inputs[0]->shape[1];
  if (attributes_of(spec).conv.groups != channels || spec.outputs[0].shape[1] != channels || channels == 1)
    return "not a depthwise convolution with one output per channel";
  if (spec.inputs[0]->dtype == DType::f32) return "x is f32";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

/// Packs weights [O, group_in, taps] as [group][tap][group_in / together][width][together], o = group * group_out +
/// column.
std::vector<std::int8_t> pack_weights(const DirectConvArgs& a, std::span<const std::int8_t> from,
                                      int together) {
  const std::int64_t width = (a.group_out + 3) / 4 * 4;
  const std::int64_t taps = static_cast<std::int64_t>(a.kernel[0]) * a.kernel[1] * a.kernel[2];
  std::vector<std::int8_t> packed(static_cast<std::size_t>(a.groups * taps * a.group_in * width));
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
std::vector<std::int8_t> pack_depthwise(std::span<const std::int8_t> from, std::size_t channels) {
  const std::size_t taps = from.size() / channels;
  std::vector<std::int8_t> packed(from.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t t = 0; t < taps; ++t) packed[t * channels + c] = from[c * taps + t];
  }
  return packed;
}

template <typename T>
DeviceBuffer upload(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

class QDirectConv final : public Kernel {
 public:
  QDirectConv(const NodeSpec& spec, bool depthwise) : depthwise_(depthwise) {
    const QConvAttributes& a = attributes_of(spec);
    DirectConvArgs& conv = args_.conv;
    conv = cuda::direct_conv_geometry(spec, a.conv);
    const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
    conv.low = bounds.low;
    conv.high = bounds.high;
    args_.x = cuda::IntegerOperand(a.x);
    args_.residual = cuda::IntegerOperand(a.residual);
    args_.y = cuda::stored_type(spec.outputs[0].dtype);
    args_.y_zero_point = a.y.zero_point;
    args_.residual_scale = cuda::residual_factor(a);
    const bool real = spec.inputs[0]->dtype == DType::f32;
    if (real) args_.x_scale = a.x.scale, args_.x_bounds = step_bounds(a.x, -INFINITY, INFINITY);
    if (is_channels_last(*spec.inputs[0])) conv.x_strides = cuda::channels_last_strides(*spec.inputs[0]);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto weights = plain.values<std::int8_t>();
    if (depthwise_) {
      conv.y_strides = cuda::channels_last_strides(spec.outputs[0]);
      if (spec.has_input(3)) conv.residual_strides = cuda::channels_last_strides(*spec.inputs[3]);
      weights_ = upload(pack_depthwise(weights, static_cast<std::size_t>(conv.groups)));
    } else {
      // With channels innermost every other stride is a multiple of the channel count.
      wide_ = !real && is_channels_last(*spec.inputs[0]) && spec.inputs[0]->shape[1] % 4 == 0 &&
              conv.group_in % 4 == 0;
      weights_ = upload(pack_weights(conv, weights, wide_ ? 4 : 1));
    }
    const std::int64_t outputs = spec.outputs[0].shape[1];
    bias_ = upload(cuda::qconv_biases(spec));
    multipliers_ = upload(requantization_multipliers(a, outputs));
    args_.weights = weights_.as<const std::int8_t>();
    args_.bias = bias_.as<const std::int32_t>();
    args_.multipliers = multipliers_.as<const float>();
  }

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    QDirectConvArgs args = args_;
    args.conv.x = inputs[0].data;
    args.conv.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.conv.y = outputs[0].data;
    if (depthwise_) {
      PIPIT_CUDA(cuda::launch_qconv_depthwise(args, stream));
    } else {
      PIPIT_CUDA(cuda::launch_qconv_direct(args, wide_, stream));
    }
  }

 private:
  QDirectConvArgs args_;
  bool depthwise_;
  bool wide_ = false;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
};

std::optional<Estimate> estimate(const NodeSpec& spec, const char* kernel, const Refusal& refusal) {
  if (refusal) return std::nullopt;
  return cuda::estimate_of(kernel,
                           cuda::plain_terms(spec, layer_as<QConv>(spec.layer).attributes().conv.window));
}

}  // namespace

void register_cuda_qconv_depthwise(Registry& registry) {
  Candidate candidate{"depthwise", refuse_depthwise,
                      [](const NodeSpec& spec) { return std::make_unique<QDirectConv>(spec, true); }};
  candidate.estimate = [](const NodeSpec& spec) {
    return estimate(spec, "depthwise i8", refuse_depthwise(spec));
  };
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

void register_cuda_qconv_direct(Registry& registry) {
  Candidate candidate{"direct", refuse_direct,
                      [](const NodeSpec& spec) { return std::make_unique<QDirectConv>(spec, false); }};
  candidate.estimate = [](const NodeSpec& spec) { return estimate(spec, "direct i8", refuse_direct(spec)); };
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
