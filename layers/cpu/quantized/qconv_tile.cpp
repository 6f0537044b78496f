// INT8 convolution on the register-tile kernel, u8 by s8, which without VNNI are widened to 16 bits.
#include "layers/cpu/quantized/qconv_tile.h"
#include "layers/cpu/conv/winograd_cost.h"

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

TileConvolution::Geometry geometry_of(const NodeSpec& spec) {
  const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
  return TileConvolution::framed({*spec.inputs[0], spec.outputs[0].shape, attributes.conv.window,
                                  attributes.conv.groups, attributes.conv.activation, spec.has_input(3),
                                  attributes.x.zero_point, false, 1, spec.fusion});
}

ByteArithmetic arithmetic_of(const NodeSpec& spec) {
  const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
  ByteArithmetic arithmetic{attributes.x,
                            attributes.residual,
                            attributes.y,
                            requantization_multipliers(attributes, spec.outputs[0].shape[1]),
                            {}};
  if (const Tensor* bias = spec.constant(2)) {
    arithmetic.bias.assign(bias->values<std::int32_t>().begin(), bias->values<std::int32_t>().end());
  }
  return arithmetic;
}

class QConvTile final : public Kernel {
 public:
  explicit QConvTile(const NodeSpec& spec)
      : convolution_(geometry_of(spec), arithmetic_of(spec),
                     to_layout(spec.constant(1)->view(), Layout::channels_last).values<std::int8_t>().data(),
                     spec.threads) {}

  std::size_t scratch_bytes() const override { return convolution_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  double kept_share() const override { return convolution_.kept_share(); }
  std::vector<KernelWork> work() const override { return {convolution_.work()}; }
  std::size_t packed_bytes() const override { return convolution_.packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    convolution_.run(inputs[0].data, nullptr, inputs.size() > 3 ? inputs[3].data : nullptr, outputs[0].data,
                     context);
  }

 private:
  TileConvolution convolution_;
};

Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (spec.inputs[0]->dtype == DType::f32) return "x is f32";
  const TensorDesc& y = spec.outputs[0];
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (y.elements() == 0 || spec.inputs[1]->elements() == 0) return "an operand is empty";
  if (TileConvolution::copies_long_rows(geometry_of(spec))) return "a padded input row is too long";
  if (TileConvolution::input_of(geometry_of(spec)).segments().empty())
    return "a filter reaches over more than 2 GiB of input";
  return std::nullopt;
}

}  // namespace

KeptForTiles kept_by_qconv_tile(const NodeSpec& spec) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::channels_last);
  return TileConvolution::kept_steps(geometry_of(spec), weights.values<std::int8_t>().data());
}

void register_cpu_qconv_tile(Registry& registry) {
  Candidate candidate{"tile", refuse_tile,
                      [](const NodeSpec& spec) { return std::make_unique<QConvTile>(spec); }};
  candidate.estimate = direct_estimate;
  candidate.kept_share = [](const NodeSpec& spec) { return kept_by_qconv_tile(spec).steps.share(); };
  candidate.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return TileConvolution::fuses_depth_to_space(geometry_of(spec), next);
  };
  candidate.fusions.writes_strided_rows = [](const NodeSpec& spec) {
    return TileConvolution::writes_strided_rows(geometry_of(spec));
  };
  candidate.fusions.overwrites = [](const NodeSpec& spec, std::size_t input) {
    return input == 3 && TileConvolution::overwrites_residual(geometry_of(spec));
  };
  registry.add(QConv::kType, DeviceKind::cpu, std::move(candidate));
}

}  // namespace pipit::internal
