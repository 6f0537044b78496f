// DynamicQConv on the register-tile kernel: the static layer's sums, finished in f32 with the scale of their image.
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

TileConvolution::Geometry geometry_of(const NodeSpec& spec) {
  const ConvAttributes& conv = layer_as<DynamicQConv>(spec.layer).attributes().conv;
  return TileConvolution::turned({*spec.inputs[0], spec.outputs[0].shape, conv.window, conv.groups,
                                  conv.activation, spec.has_input(DynamicQConv::kResidual),
                                  kDynamicBytes.zero_point, false, 1, spec.fusion});
}

ByteArithmetic arithmetic_of(const NodeSpec& spec) {
  const DynamicQConvAttributes& attributes = layer_as<DynamicQConv>(spec.layer).attributes();
  return {kDynamicBytes, {}, {}, scales_of_outputs(attributes, spec.outputs[0].shape[1]), {}};
}

class DynamicTile final : public Kernel {
 public:
  explicit DynamicTile(const NodeSpec& spec)
      : convolution_(geometry_of(spec), arithmetic_of(spec),
                     to_layout(spec.constant(1)->view(), Layout::channels_last).values<std::int8_t>().data(),
                     spec.threads),
        scales_(spec.inputs[DynamicQConv::kScales]->elements()),
        pixels_(spec.outputs[0].elements() / spec.outputs[0].shape[1] / scales_),
        pixel_scales_at_((convolution_.scratch_bytes() + 63) / 64 * 64) {}

  // Several scales are spread over the pixels: a tile may hold pixels of two images.
  std::size_t scratch_bytes() const override {
    return pixel_scales_at_ +
           (scales_ == 1 ? 0 : static_cast<std::size_t>(scales_ * pixels_) * sizeof(float));
  }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  double kept_share() const override { return convolution_.kept_share(); }
  std::vector<KernelWork> work() const override { return {convolution_.work()}; }
  std::size_t packed_bytes() const override { return convolution_.packed_bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* scales = inputs[DynamicQConv::kScales].as<float>();
    PixelScales pixel_scales{scales, 0};
    if (scales_ > 1) {
      auto* const spread = reinterpret_cast<float*>(context.scratch + pixel_scales_at_);
      for (std::int64_t s = 0; s < scales_; ++s) std::fill_n(spread + s * pixels_, pixels_, scales[s]);
      pixel_scales = {spread, 1};
    }
    const float* residual = optional_data<float>(inputs, DynamicQConv::kResidual);
    convolution_.run(inputs[0].data, optional_data<float>(inputs, 2),
                     reinterpret_cast<const std::byte*>(residual), outputs[0].data, context, pixel_scales);
  }

 private:
  TileConvolution convolution_;
  std::int64_t scales_;
  std::int64_t pixels_;  // that share a scale
  std::size_t pixel_scales_at_;
};

Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& y = spec.outputs[0];
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(DynamicQConv::kResidual) && !is_channels_last(*spec.inputs[DynamicQConv::kResidual]))
    return "the residual must be channels_last";
  if (y.elements() == 0 || spec.inputs[1]->elements() == 0) return "an operand is empty";
  if (TileConvolution::copies_long_rows(geometry_of(spec))) return "a padded input row is too long";
  if (TileConvolution::input_of(geometry_of(spec)).segments().empty())
    return "a filter reaches over more than 2 GiB of input";
  return std::nullopt;
}

}  // namespace

void register_cpu_dynamic_conv(Registry& registry) {
  Candidate tile{"tile", refuse_tile,
                 [](const NodeSpec& spec) { return std::make_unique<DynamicTile>(spec); }};
  tile.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return TileConvolution::fuses_epilogue(geometry_of(spec), next);
  };
  tile.fusions.writes_strided_rows = [](const NodeSpec& spec) {
    return TileConvolution::writes_strided_rows(geometry_of(spec));
  };
  tile.fusions.overwrites = [](const NodeSpec& spec, std::size_t input) {
    return input == DynamicQConv::kResidual && TileConvolution::overwrites_residual(geometry_of(spec));
  };
  registry.add(DynamicQConv::kType, DeviceKind::cpu, std::move(tile));
}

}  // namespace pipit::internal
