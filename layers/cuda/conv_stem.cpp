// Candidate "stem": the first convolution of a network, fp16, on an image of up to four channels. Reads the user's f32
// image itself.
#include "engine/cuda/runtime.h"
#include "layers/conv.h"
#include "layers/cuda/conv_gemm_problem.h"
#include "layers/cuda/conv_stem_launch.h"
#include "layers/cuda/conv_stem_problem.h"
#include "layers/cuda/families.h"
#include "layers/layer_kernel.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::StemArgs;

StemArgs args_of(const NodeSpec& spec) {
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  StemArgs args = cuda::stem_args(cuda::conv_gemm_shape(spec, attributes, x.shape[1]));
  cuda::set_stem_strides(args, x);
  args.x_half = x.dtype == DType::f16;
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
  if (Refusal reason = cuda::refuse_stem_problem(spec, attributes)) return reason;
  return cuda::refuse_stem_memory(args_of(spec));
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
