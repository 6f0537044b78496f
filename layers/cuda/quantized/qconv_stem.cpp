// Candidate "stem" of QConv: convolutions of few channels, such as the first of a network, which reads the user's f32
// image itself where the graph says so.
#include <fmt/format.h>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_stem_launch.h"
#include "layers/cuda/conv/conv_stem_problem.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::StemArgs;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_stem(const NodeSpec& spec) {
  const QConvAttributes& a = attributes_of(spec);
  if (!cuda::is_symmetric_i8(a.x)) return "x is not i8 with zero point 0";
  if (a.y.quantized() && !cuda::is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !cuda::is_symmetric_i8(a.residual))
    return "the residual is not i8 with zero point 0";
  if (spec.inputs[0]->dtype == DType::f32 && !cuda::ImageScale::takes(a.x.scale))
    return fmt::format("the image's scale is {:g}; 2^-60 to 2^60 are handled", a.x.scale);
  return cuda::refuse_stem_problem(spec, a.conv);
}

class QStem final : public Kernel {
 public:
  explicit QStem(const NodeSpec& spec) : args_(cuda::stem_args(spec, attributes_of(spec).conv)) {
    const QConvAttributes& a = attributes_of(spec);
    const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
    args_.low = bounds.low;
    args_.high = bounds.high;
    if (a.y.quantized()) args_.whole_bounds = cuda::PairBounds::of(bounds);
    args_.x_scale = cuda::ImageScale(a.x.scale);
    args_.residual_scale = cuda::residual_factor(a);
    args_.stored = cuda::stored_type(spec.outputs[0].dtype);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::vector<std::int8_t> packed =
        cuda::pack_qstem_weights(args_, weights.values<std::int8_t>().data());
    weights_ = DeviceBuffer(packed.data(), packed.size());
    const std::int64_t outputs = args_.shape.out_c;
    std::vector<std::int32_t> bias = cuda::qconv_biases(spec);
    args_.small = cuda::most_of_int8(spec, weights.values<std::int8_t>(), bias).is_small();
    bias = cuda::in_stem_order(args_, std::move(bias));
    bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(std::int32_t));
    const std::vector<float> multipliers = cuda::in_stem_order(args_, requantization_multipliers(a, outputs));
    multipliers_ = DeviceBuffer(multipliers.data(), multipliers.size() * sizeof(float));
    args_.weights = weights_.data();
    args_.bias = bias_.data();
    args_.multipliers = multipliers_.as<const float>();
    table_ = cuda::upload_table(cuda::follower_table(spec));
    args_.table = table_.as<const std::uint8_t>();
    bool can_overlap = false;
    PIPIT_CUDA(cuda::prepare_qstem(args_, resident_blocks_, can_overlap));
    args_.overlap = args_.overlap && can_overlap;
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes() + table_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    StemArgs args = args_;
    args.x = inputs[0].data;
    args.residual = optional_data<std::int8_t>(inputs, 3);
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qstem(args, resident_blocks_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  StemArgs args_;
  int resident_blocks_ = 1;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
  DeviceBuffer table_;
};

}  // namespace

void register_cuda_qconv_stem(Registry& registry) {
  Candidate candidate{
      "stem", refuse_stem, [](const NodeSpec& spec) { return std::make_unique<QStem>(spec); },
      [](const NodeSpec& spec) { return cuda::stem_variants(spec, attributes_of(spec).conv); }};
  candidate.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
    if (refuse_stem(spec)) return std::nullopt;
    return cuda::stem_estimate(spec, attributes_of(spec).conv);
  };
  candidate.fuses_epilogue = cuda::fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
