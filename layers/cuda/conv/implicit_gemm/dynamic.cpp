// Candidate "implicit_gemm" of DynamicQConv: the products of INT8 with a plan. Sums are scaled in registers by the
// scales that DynamicQuantize wrote.
#include <fmt/format.h>

#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/implicit_gemm/padded_input.h"
#include "layers/cuda/families.h"
#include "layers/ops/dynamic_int8.h"

namespace pipit::internal {

namespace {

using namespace cuda;

const DynamicQConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<DynamicQConv>(spec.layer).attributes();
}

Refusal refuse(const NodeSpec& spec) {
  const DType y = spec.outputs[0].dtype;
  if (spec.inputs[0]->dtype != DType::i8 || spec.has_input(DynamicQConv::kZeroPoint))
    return "x is not i8 with zero point 0";
  if (spec.has_input(DynamicQConv::kSumBias) || !attributes_of(spec).weight_zero_points.empty() ||
      spec.inputs[1]->dtype != DType::i8)
    return "weights with zero points are not handled";
  if (y != DType::f16 && y != DType::f32) return "only y of f16 and f32 is handled";
  if (spec.has_input(DynamicQConv::kResidual) && spec.inputs[DynamicQConv::kResidual]->dtype != y)
    return fmt::format("the residual must be {}, as y is", dtype_name(y));
  constexpr std::int64_t kDepth = 2 * kTileDepth;  // offsets are counted for channels padded to a whole step
  return refuse_conv_gemm(spec, attributes_of(spec).conv,
                          ceil_div(spec.inputs[0]->shape[1], kDepth) * kTileDepth);
}

ConvShape shape_of(const NodeSpec& spec) {
  ConvShape shape =
      conv_gemm_shape(spec, attributes_of(spec).conv, ceil_div(spec.inputs[0]->shape[1], 16) * 8);
  shape.int8 = true;
  shape.real_output = true;
  shape.bf16 = false;
  KeptDepth(shape).describe(shape);
  return shape;
}

bool copies_input(const NodeSpec& spec, const ConvShape& shape) {
  return shape.in_c * 2 != spec.inputs[0]->shape[1] || !is_channels_last(*spec.inputs[0]);
}

Estimate estimate(const NodeSpec& spec) {
  const ConvShape shape = shape_of(spec);
  return conv_gemm_estimate(spec, shape, copies_input(spec, shape));
}

std::vector<std::string> variant_names(const NodeSpec& spec) {
  return names_of(conv_gemm_variants(spec, shape_of(spec)));
}

class DynamicImplicitGemm final : public PackedKernel {
 public:
  explicit DynamicImplicitGemm(const NodeSpec& spec)
      : shape_(shape_of(spec)), copies_(copies_input(spec, shape_)), variant_(chosen_variant(spec, shape_)) {
    const KeptDepth all(shape_);
    const int columns = variant_.tile.columns;
    args_ = conv_gemm_args(shape_, all, variant_.tile);
    args_.overlap = variant_.overlap;
    const auto rows = static_cast<std::size_t>(ceil_div(shape_.out_c, columns) * columns);
    const int channels = static_cast<int>(spec.inputs[0]->shape[1]);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    args_.weights =
        keep(pack_qconv_weights(shape_, all, channels, weights.values<std::int8_t>().data(), columns));
    args_.bias = keep(in_packed_order(conv_biases(spec), rows));
    args_.multipliers = keep(in_packed_order(scales_of_outputs(attributes_of(spec), shape_.out_c), rows));
    const Clamp& activation = attributes_of(spec).conv.activation;
    args_.low = activation.low, args_.high = activation.high;
    args_.stored = cuda::stored_type(spec.outputs[0].dtype);
    args_.dynamic.rows = Divisor(shape_.rows() / spec.inputs[DynamicQConv::kScales]->elements());
    PIPIT_CUDA(prepare_dynamic_gemm(variant_.tile));
  }

  std::size_t scratch_bytes() const override { return copies_ ? padded_input_bytes(shape_) : 0; }
  bool orders_prior_writes() const override { return true; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    ConvGemmArgs args = args_;
    args.x = copies_ ? pad_input(inputs[0], shape_, context.scratch, stream) : inputs[0].as<std::int8_t>();
    args.dynamic.scales = inputs[DynamicQConv::kScales].as<float>();
    if (const ConstTensorView& residual = inputs[DynamicQConv::kResidual]; residual.present())
      args.dynamic.residual = residual.data;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_dynamic_gemm(variant_.tile, args, stream));
  }

 private:
  ConvShape shape_;
  bool copies_;  ///< x is brought to [pixels, in_c] first
  ConvVariant variant_;
  ConvGemmArgs args_;
};

}  // namespace

void register_cuda_dynamic_gemm(Registry& registry) {
  registry.add(
      DynamicQConv::kType, DeviceKind::cuda,
      conv_candidate<DynamicImplicitGemm>("implicit_gemm", refuse, estimate, nullptr, variant_names));
}

}  // namespace pipit::internal
