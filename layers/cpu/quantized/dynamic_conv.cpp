// DynamicQConv on the register-tile kernel: the static layer's sums, finished in f32 with the scale of their image.
// Weights less their zero points may need 9 bits: SplitWeights.
#include <optional>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/split_weights.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

TileConvolution::Geometry geometry_of(const NodeSpec& spec, int parts = 1) {
  const ConvAttributes& conv = layer_as<DynamicQConv>(spec.layer).attributes().conv;
  TileConvolution::Geometry geometry = TileConvolution::turned(
      {*spec.inputs[0], spec.outputs[0].shape, conv.window, conv.groups, conv.activation,
       spec.has_input(DynamicQConv::kResidual), kDynamicBytes.zero_point, false, 1, spec.fusion});
  geometry.parts = parts;
  return geometry;
}

bool has_zero_point(const NodeSpec& spec) {
  return spec.has_input(DynamicQConv::kZeroPoint);
}

// Where the zero point comes at run time, sums begin with it times those of 1.
ByteArithmetic arithmetic_of(const NodeSpec& spec) {
  const DynamicQConvAttributes& attributes = layer_as<DynamicQConv>(spec.layer).attributes();
  const Quantization x = has_zero_point(spec) ? Quantization{1, 1, DType::u8} : kDynamicBytes;
  return {x, {}, {}, scales_of_outputs(attributes, spec.outputs[0].shape[1]), {}};
}

struct DynamicWeights {
  Tensor turned;  // what they are split from, where that is no constant
  std::optional<SplitWeights> split;
};

DynamicWeights dynamic_weights(const NodeSpec& spec) {
  const DynamicQConvAttributes& attributes = layer_as<DynamicQConv>(spec.layer).attributes();
  const Tensor& given = *spec.constant(1);
  const std::int64_t outputs = given.shape()[0];
  // Of one tap both layouts are one: large matrices are not copied.
  const bool one_tap = given.shape().elements() == outputs * given.shape()[1];
  DynamicWeights result;
  if (!one_tap) result.turned = to_layout(given.view(), Layout::channels_last);
  const Tensor& weights = one_tap ? given : result.turned;
  result.split.emplace(weights.view().data, weights.desc().dtype, zero_points_of_outputs(attributes, outputs),
                       weights.shape().elements() / outputs);
  return result;
}

class DynamicTile final : public Kernel {
 public:
  explicit DynamicTile(const NodeSpec& spec) : DynamicTile(spec, dynamic_weights(spec)) {}

  // Several scales are spread over the pixels: a tile may hold pixels of two images.
  std::size_t scratch_bytes() const override {
    return multipliers_at_ + (has_zero_point_ ? convolution_.multipliers().size_bytes() : 0);
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
    if (starts_) {
      auto* const start = reinterpret_cast<std::int32_t*>(context.scratch + sum_bias_at_);
      set_sum_bias(inputs, start, pixel_scales);
      pixel_scales.sum_bias = start;
    }
    if (has_zero_point_) {
      auto* const multipliers = reinterpret_cast<float*>(context.scratch + multipliers_at_);
      const std::span<const float> own = convolution_.multipliers();
      for (std::size_t o = 0; o < own.size(); ++o) multipliers[o] = *scales * own[o];
      pixel_scales.multipliers = multipliers;
      pixel_scales.data = nullptr;
    }
    const float* residual = optional_data<float>(inputs, DynamicQConv::kResidual);
    convolution_.run(inputs[0].data, optional_data<float>(inputs, 2),
                     reinterpret_cast<const std::byte*>(residual), outputs[0].data, context, pixel_scales);
  }

 private:
  DynamicTile(const NodeSpec& spec, const DynamicWeights& weights)
      : convolution_(geometry_of(spec, weights.split->parts()), arithmetic_of(spec), *weights.split,
                     spec.threads),
        scales_(spec.inputs[DynamicQConv::kScales]->elements()),
        pixels_(spec.outputs[0].elements() / spec.outputs[0].shape[1] / scales_),
        has_zero_point_(has_zero_point(spec)),
        starts_(has_zero_point_ || spec.has_input(DynamicQConv::kSumBias)),
        pixel_scales_at_((convolution_.scratch_bytes() + 63) / 64 * 64),
        sum_bias_at_(pixel_scales_at_ +
                     (scales_ == 1 ? 0 : static_cast<std::size_t>(scales_ * pixels_) * sizeof(float))),
        multipliers_at_(sum_bias_at_ + (starts_ ? convolution_.sum_bias().size_bytes() : 0)) {}

  // Modulo 2^32, like the sums.
  void set_sum_bias(std::span<const ConstTensorView> inputs, std::int32_t* start,
                    PixelScales& pixel_scales) const {
    std::uint32_t factor = 1;
    if (has_zero_point_) {
      const ConstTensorView& view = inputs[DynamicQConv::kZeroPoint];
      const int zero_point = byte_at(view, 0) + (view.desc.dtype == DType::i8 ? 128 : 0);
      pixel_scales.padding = zero_point;
      factor = static_cast<std::uint32_t>(zero_point);
    }
    const auto* bias = optional_data<std::int32_t>(inputs, DynamicQConv::kSumBias);
    const std::span<const std::int32_t> own = convolution_.sum_bias();
    for (std::size_t o = 0; o < own.size(); ++o) {
      const std::uint32_t more = bias != nullptr ? static_cast<std::uint32_t>(bias[o]) : 0;
      start[o] = static_cast<std::int32_t>(factor * static_cast<std::uint32_t>(own[o]) + more);
    }
  }

  TileConvolution convolution_;
  std::int64_t scales_;
  std::int64_t pixels_;  // that share a scale
  bool has_zero_point_;  // known at run time, as what sums begin with is then
  bool starts_;
  std::size_t pixel_scales_at_, sum_bias_at_, multipliers_at_;
};

Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& y = spec.outputs[0];
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.inputs[0]->dtype == DType::i8 && !has_zero_point(spec)) return "i8 has no zero point";
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
