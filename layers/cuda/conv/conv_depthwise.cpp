// Candidate "depthwise_quads" of Conv: the depthwise convolutions of networks in fp16.
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_depthwise_launch.h"
#include "layers/cuda/conv/conv_depthwise_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

namespace {

using cuda::ConvDepthwiseArgs;
using cuda::DeviceBuffer;

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<Conv>(spec.layer).attributes();
}

Refusal refuse_depthwise_quads(const NodeSpec& spec) {
  if (spec.inputs[0]->dtype != DType::f16 || spec.outputs[0].dtype != DType::f16)
    return "only f16 is handled";
  return cuda::refuse_sliding_depthwise(spec, attributes_of(spec));
}

class ConvDepthwise final : public Kernel {
 public:
  explicit ConvDepthwise(const NodeSpec& spec) {
    const ConvAttributes& a = attributes_of(spec);
    static_cast<cuda::DepthwiseGeometry&>(args_) = cuda::depthwise_geometry(spec, a.window);
    const auto channels = static_cast<std::size_t>(args_.channels);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::span<const float> from = plain.values<float>();
    const std::size_t taps = from.size() / channels;
    std::vector<float> weights(from.size()), bias(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t t = 0; t < taps; ++t) weights[t * channels + c] = from[c * taps + t];
    }
    if (const Tensor* given = spec.constant(2)) {
      const auto values = given->values<float>();
      bias.assign(values.begin(), values.end());
    }
    weights_ = DeviceBuffer(weights.data(), weights.size() * sizeof(float));
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.as<const float>();
    args_.bias = bias_.as<const float>();
    args_.low = a.activation.low;
    args_.high = a.activation.high;
    args_.function = cuda::follower_function(spec);
    PIPIT_CUDA(cuda::prepare_conv_depthwise_quads(args_, overlap_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ConvDepthwiseArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_conv_depthwise_quads(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  ConvDepthwiseArgs args_;
  bool overlap_ = false;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
};

}  // namespace

void register_cuda_conv_depthwise_quads(Registry& registry) {
  Candidate candidate{"depthwise_quads", refuse_depthwise_quads,
                      [](const NodeSpec& s) { return std::make_unique<ConvDepthwise>(s); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_depthwise_quads(spec)) return std::nullopt;
    return cuda::estimate_of("depthwise_quads f16", cuda::plain_terms(spec, attributes_of(spec).window));
  };
  candidate.fuses_epilogue = cuda::fuses_function;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
