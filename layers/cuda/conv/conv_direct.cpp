// Candidates "depthwise" and "direct": convolutions in fp32 arithmetic, stored as f32 or f16.
#include <algorithm>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_direct_problem.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::DirectConvArgs;

Refusal refuse_direct(const NodeSpec& spec) {
  const DType type = spec.inputs[0]->dtype;
  if (spec.precision == Precision::int8 || (type != DType::f32 && type != DType::f16))
    return "only f32 and f16 are handled";
  if (spec.outputs[0].dtype != type || (spec.has_input(3) && spec.inputs[3]->dtype != type))
    return "input, residual and output must have one element type";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (spec.outputs[0].elements() == 0) return "empty tensors are not handled";
  return cuda::refuse_wide_window(spec, layer_as<Conv>(spec.layer).attributes().window);
}

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_direct(spec)) return reason;
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
  DirectConvArgs a = cuda::direct_conv_geometry(spec, attributes);
  a.low = attributes.activation.low;
  a.high = attributes.activation.high;
  return a;
}

DeviceBuffer upload(const std::vector<float>& values) {
  return {values.data(), values.size() * sizeof(float)};
}

/// Packs weights [O, group_in, taps] as [group][tap][group_in][width] with o = group * group_out + column.
DeviceBuffer pack_weights(const DirectConvArgs& a, const Tensor& weights, int width) {
  const Tensor plain = to_layout(weights.view(), Layout::row_major);
  const float* from = plain.values<float>().data();
  const std::int64_t taps = static_cast<std::int64_t>(a.kernel[0]) * a.kernel[1] * a.kernel[2];
  std::vector<float> packed(static_cast<std::size_t>(a.groups * taps * a.group_in * width));
  float* to = packed.data();
  for (std::int64_t g = 0; g < a.groups; ++g) {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t c = 0; c < a.group_in; ++c, to += width) {
        for (std::int64_t o = 0; o < a.group_out; ++o) {
          to[o] = from[((g * a.group_out + o) * a.group_in + c) * taps + t];
        }
      }
    }
  }
  return upload(packed);
}

/// Weights [C, 1, taps] as [taps][C].
DeviceBuffer pack_depthwise(const DirectConvArgs& a, const Tensor& weights) {
  const Tensor plain = to_layout(weights.view(), Layout::row_major);
  const std::span<const float> from = plain.values<float>();
  const std::size_t channels = static_cast<std::size_t>(a.groups);
  const std::size_t taps = from.size() / channels;
  std::vector<float> packed(from.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t t = 0; t < taps; ++t) packed[t * channels + c] = from[c * taps + t];
  }
  return upload(packed);
}

class DirectConv final : public Kernel {
 public:
  DirectConv(const NodeSpec& spec, bool depthwise)
      : args_(args_of(spec)), half_(spec.inputs[0]->dtype == DType::f16), depthwise_(depthwise) {
    if (depthwise_) {
      args_.x_strides = cuda::channels_last_strides(*spec.inputs[0]);
      args_.y_strides = cuda::channels_last_strides(spec.outputs[0]);
      if (spec.has_input(3)) args_.residual_strides = cuda::channels_last_strides(*spec.inputs[3]);
      weights_ = pack_depthwise(args_, *spec.constant(1));
    } else {
      if (is_channels_last(*spec.inputs[0])) args_.x_strides = cuda::channels_last_strides(*spec.inputs[0]);
      // With channels innermost every other stride is a multiple of the channel count.
      wide_ =
          is_channels_last(*spec.inputs[0]) && spec.inputs[0]->shape[1] % 4 == 0 && args_.group_in % 4 == 0;
      weights_ = pack_weights(args_, *spec.constant(1), (args_.group_out + 3) / 4 * 4);
    }
    std::vector<float> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), bias.size(), bias.data());
    }
    bias_ = upload(bias);
    args_.weights = weights_.as<const float>();
    args_.bias = bias_.as<const float>();
  }

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    DirectConvArgs args = args_;
    args.x = inputs[0].data;
    args.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.y = outputs[0].data;
    if (depthwise_) {
      PIPIT_CUDA(cuda::launch_conv_depthwise(args, half_, stream));
    } else {
      PIPIT_CUDA(cuda::launch_conv_direct(args, half_, wide_, stream));
    }
  }

 private:
  DirectConvArgs args_;
  bool half_;
  bool depthwise_;
  bool wide_ = false;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

std::optional<Estimate> estimate(const NodeSpec& spec, std::string_view name, const Refusal& refusal) {
  if (refusal) return std::nullopt;
  const bool halves = spec.outputs[0].dtype == DType::f16;
  return cuda::estimate_of(fmt::format("{} {}", name, halves ? "f16" : "f32"),
                           cuda::plain_terms(spec, layer_as<Conv>(spec.layer).attributes().window));
}

}  // namespace

void register_cuda_conv_depthwise(Registry& registry) {
  Candidate candidate{"depthwise", refuse_depthwise,
                      [](const NodeSpec& spec) { return std::make_unique<DirectConv>(spec, true); }};
  candidate.estimate = [](const NodeSpec& spec) {
    return estimate(spec, "depthwise", refuse_depthwise(spec));
  };
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

void register_cuda_conv_direct(Registry& registry) {
  Candidate candidate{"direct", refuse_direct,
                      [](const NodeSpec& spec) { return std::make_unique<DirectConv>(spec, false); }};
  candidate.estimate = [](const NodeSpec& spec) { return estimate(spec, "direct", refuse_direct(spec)); };
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
