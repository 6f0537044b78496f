#include "layers/cuda/quantized/qconv_gemm_operands.h"

#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_average.h"
#include "layers/cuda/conv/conv_gemm_problem.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/ops/qconv.h"

namespace pipit::cuda {

namespace {

ConvStored stored_as(const NodeSpec& spec, const Quantization& y) {
  if (y.quantized()) return ConvStored::i8;
  return spec.outputs[0].dtype == DType::f16 ? ConvStored::f16 : ConvStored::f32;
}

Tensor row_major_weights(const NodeSpec& spec) {
  return to_layout(spec.constant(1)->view(), Layout::row_major);
}

std::span<const std::byte> bytes_of(const std::vector<std::int8_t>& packed) {
  return std::as_bytes(std::span(packed));
}

}  // namespace

Refusal refuse_qconv_gemm(const NodeSpec& spec) {
  if (Refusal reason = refuse_groups(layer_as<QConv>(spec.layer).attributes().conv)) return reason;
  return refuse_grouped_qconv_gemm(spec);
}

Refusal refuse_grouped_qconv_gemm(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  if (!is_symmetric_i8(a.x) || spec.inputs[0]->dtype != DType::i8) return "x is not i8 with zero point 0";
  if (a.y.quantized() && !is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !is_symmetric_i8(a.residual)) return "the residual is not i8 with zero point 0";
  constexpr std::int64_t kDepth = 2 * kTileDepth;  // offsets are counted for channels padded to a whole step
  return refuse_grouped_conv_gemm(spec, a.conv, ceil_div(spec.inputs[0]->shape[1], kDepth) * kTileDepth);
}

ConvShape qconv_gemm_shape(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  ConvShape shape = conv_gemm_shape(spec, a.conv, ceil_div(x.shape[1], 16) * 8);
  if (x.shape[1] % 16 == 8 && is_channels_last(x)) shape.unstored = 4;
  shape.int8 = true;
  shape.real_output = !a.y.quantized();
  shape.averaged = averages(spec);
  kept_depth(spec, shape).describe(shape);
  return shape;
}

double qconv_kept_cost(const NodeSpec& spec) {
  return refuse_qconv_gemm(spec) ? 1 : kept_cost(qconv_gemm_shape(spec), spec.gpu);
}

QConvGemmOperands::QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, const KeptDepth& depth,
                                     int channels, int columns)
    : QConvGemmOperands(
          spec, shape,
          bytes_of(pack_qconv_weights(shape, depth, channels,
                                      row_major_weights(spec).values<std::int8_t>().data(), columns)),
          columns) {}

QConvGemmOperands::QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape,
                                     std::span<const std::byte> packed, int columns)
    : weights_(packed.data(), packed.size()) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const Tensor weights = row_major_weights(spec);
  std::vector<std::int32_t> bias = qconv_biases(spec);
  epilogue_.small = most_of_int8(spec, weights.values<std::int8_t>(), bias).is_small();
  const auto rows = static_cast<std::size_t>(ceil_div(shape.out_c, columns) * columns);
  bias = in_packed_order(std::move(bias), rows);
  bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(std::int32_t));
  const std::vector<float> multipliers = in_packed_order(requantization_multipliers(a, shape.out_c), rows);
  multipliers_ = DeviceBuffer(multipliers.data(), multipliers.size() * sizeof(float));

  const StepBounds bounds = output_bounds(a.y, a.conv.activation);
  epilogue_.low = bounds.low;
  epilogue_.high = bounds.high;
  if (a.y.quantized()) epilogue_.whole_bounds = PairBounds::of(bounds);
  epilogue_.residual_scale = residual_factor(a);
  epilogue_.stored = stored_as(spec, a.y);
  table_ = upload_table(follower_table(spec));
}

void QConvGemmOperands::set(ConvGemmArgs& args) const {
  args.weights = weights_.data();
  args.bias = bias_.data();
  args.multipliers = multipliers_.as<const float>();
  args.small = epilogue_.small;
  args.low = epilogue_.low;
  args.high = epilogue_.high;
  args.whole_bounds = epilogue_.whole_bounds;
  args.residual_scale = epilogue_.residual_scale;
  args.stored = epilogue_.stored;
  args.table = table_.as<const std::uint8_t>();
}

}  // namespace pipit::cuda
