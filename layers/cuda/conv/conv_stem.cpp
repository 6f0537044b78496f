// Candidate "stem": convolutions of few channels in fp16, such as the first of a network, which reads the user's f32
// image itself.
#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_stem_launch.h"
#include "layers/cuda/conv/conv_stem_problem.h"
#include "layers/cuda/conv/half_follower.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::StemArgs;

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<Conv>(spec.layer).attributes();
}

Refusal refuse_stem(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (spec.precision != Precision::fp16 || (x.dtype != DType::f16 && x.dtype != DType::f32) ||
      y.dtype != DType::f16)
    return "only fp16 is handled";
  if (spec.has_input(3) && spec.inputs[3]->dtype != DType::f16) return "the residual must be f16";
  return cuda::refuse_stem_problem(spec, attributes_of(spec));
}

class Stem final : public Kernel {
 public:
  explicit Stem(const NodeSpec& spec) : args_(cuda::stem_args(spec, attributes_of(spec))) {
    const Clamp& clamp = attributes_of(spec).activation;
    args_.low = clamp.low;
    args_.high = clamp.high;
    args_.function = cuda::follower_function(spec);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<Half> packed = cuda::pack_stem_weights(args_, weights.values<float>().data());
    weights_ = DeviceBuffer(packed.data(), packed.size() * sizeof(Half));
    std::vector<float> bias(static_cast<std::size_t>(args_.shape.out_c));
    if (const Tensor* given = spec.constant(2)) {
      std::copy_n(given->values<float>().data(), bias.size(), bias.begin());
    }
    bias = cuda::in_stem_order(args_, std::move(bias));
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(float));
    args_.weights = weights_.data();
    args_.bias = bias_.data();
    bool can_overlap = false;
    PIPIT_CUDA(cuda::prepare_stem(args_, resident_blocks_, can_overlap));
    args_.overlap = args_.overlap && can_overlap;
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    StemArgs args = args_;
    args.x = inputs[0].data;
    args.residual = optional_data<Half>(inputs, 3);
    args.y = outputs[0].data;
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
  Candidate candidate{"stem", refuse_stem, [](const NodeSpec& spec) { return std::make_unique<Stem>(spec); },
                      [](const NodeSpec& spec) { return cuda::stem_variants(spec, attributes_of(spec)); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_stem(spec)) return std::nullopt;
    return cuda::stem_estimate(spec, attributes_of(spec));
  };
  candidate.fuses_epilogue = cuda::fuses_function;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
