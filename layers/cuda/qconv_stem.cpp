// Candidate "stem" of QConv: the first convolution of a network on an image of up to four channels. Reads the user's f32
// image itself where the graph says so.
#include <fmt/format.h>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv_gemm_launch.h"
#include "layers/cuda/conv_gemm_problem.h"
#include "layers/cuda/conv_stem_launch.h"
#include "layers/cuda/conv_stem_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/qconv_common.h"
#include "layers/layer_kernel.h"
#include "layers/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::QStemArgs;

QStemArgs args_of(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  QStemArgs args;
  args.stem = cuda::qstem_args(cuda::conv_gemm_shape(spec, a.conv, x.shape[1]));
  cuda::set_stem_strides(args.stem, x);
  const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
  args.stem.low = bounds.low;
  args.stem.high = bounds.high;
  args.x_f32 = x.dtype == DType::f32;
  args.x_scale = a.x.scale;
  return args;
}

Refusal refuse_stem(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  if (!cuda::is_symmetric_i8(a.x)) return "x is not i8 with zero point 0";
  if (!cuda::is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (Refusal reason = cuda::refuse_stem_problem(spec, a.conv)) return reason;
  return cuda::refuse_stem_memory(args_of(spec).stem);
}

class QStem final : public Kernel {
 public:
  explicit QStem(const NodeSpec& spec) : args_(args_of(spec)) {
    const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<std::int8_t> packed =
        cuda::pack_qstem_weights(args_.stem, weights.values<std::int8_t>().data());
    weights_ = DeviceBuffer(packed.data(), packed.size());
    const std::int64_t outputs = args_.stem.shape.out_c;
    const auto columns =
        static_cast<std::size_t>(cuda::ceil_div(outputs, args_.stem.width) * args_.stem.width);
    std::vector<std::int32_t> bias(static_cast<std::size_t>(outputs));
    if (const Tensor* given = spec.constant(2)) {
      const auto values = given->values<std::int32_t>();
      bias.assign(values.begin(), values.end());
    }
    args_.small_sums = cuda::sums_stay_below(weights.values<std::int8_t>(), bias, cuda::kSmallSum);
    bias = cuda::in_packed_order(std::move(bias), columns);
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(std::int32_t));
    const std::vector<float> multipliers =
        cuda::in_packed_order(requantisation_multipliers(a, outputs), columns);
    multipliers_ = DeviceBuffer(multipliers.data(), multipliers.size() * sizeof(float));
    args_.weights = weights_.as<const std::int8_t>();
    args_.bias = bias_.as<const std::int32_t>();
    args_.multipliers = multipliers_.as<const float>();
    PIPIT_CUDA(cuda::prepare_qstem(args_, resident_blocks_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    QStemArgs args = args_;
    args.stem.x = inputs[0].data;
    args.y = outputs[0].as<std::int8_t>();
    PIPIT_CUDA(cuda::launch_qstem(args, resident_blocks_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  QStemArgs args_;
  int resident_blocks_ = 1;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
};

}  // namespace

void register_cuda_qconv_stem(Registry& registry) {
  registry.add(QConv::kType, DeviceKind::cuda,
               {"stem", refuse_stem,
                [](const NodeSpec& spec) { return std::unique_ptr<Kernel>(std::make_unique<QStem>(spec)); }});
}

}  // namespace pipit
