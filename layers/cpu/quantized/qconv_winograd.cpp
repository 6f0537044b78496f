// INT8 convolution by Winograd's minimal filtering, with the bits of the direct sums.
#include <fmt/format.h>

#include <cmath>

#include "engine/graph/shared_buffer.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/winograd_cost.h"
#include "layers/cpu/conv/winograd_schedule.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/qconv_tile.h"
#include "layers/cpu/quantized/winograd_int8.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

// With fewer the transforms cost more than the saved products.
constexpr std::int64_t kMinTiles = 9;
constexpr std::int64_t kMinChannels = 16;
// Products are twice the size of transformed inputs. Measured on Zen 5, of 1 MiB of cache: 3 to 5 % of a layer.
constexpr int kPasses = 2;

WinogradTiles byte_tiles(const Shape& y) {
  return WinogradTiles(y, kByteWinogradOutputs, WinogradBorder::fewer_points);
}

KeptSteps kept_steps_of(const Tensor& row_major) {
  return winograd_kept_steps(*s16_tiles(), row_major.values<std::int8_t>().data(), row_major.shape()[0],
                             row_major.shape()[1]);
}

double kept_share_of(const NodeSpec& spec) {
  return kept_steps_of(to_layout(spec.constant(1)->view(), Layout::row_major)).share();
}

class QConvWinograd final : public Kernel {
 public:
  explicit QConvWinograd(const NodeSpec& spec)
      : QConvWinograd(spec, to_layout(spec.constant(1)->view(), Layout::row_major)) {}
  QConvWinograd(const NodeSpec& spec, const Tensor& row_major)
      : attributes_(layer_as<QConv>(spec.layer).attributes()),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        y_pixel_(spec.fusion.row_stride != 0 ? static_cast<std::int64_t>(spec.fusion.row_stride) : y_[1]),
        schedule_(x_, byte_tiles(y_), y_[1], *s16_tiles(), kept_steps_of(row_major), spec.threads, kPasses),
        multipliers_(requantization_multipliers(attributes_, y_[1])),
        bias_(multipliers_.size(), 0) {
    if (const Tensor* bias = spec.constant(2))
      bias_.assign(bias->values<std::int32_t>().begin(), bias->values<std::int32_t>().end());
    pack(row_major);
  }

  std::size_t scratch_bytes() const override { return schedule_.scratch_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  double kept_share() const override { return schedule_.kept().share(); }
  std::vector<KernelWork> work() const override {
    return {{schedule_.macs(), Products::int16, s16_tiles()->isa}};
  }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Window& window = attributes_.conv.window;
    const std::int64_t image_bytes = x_[1] * x_[2] * x_[3];
    ByteImage image{nullptr, x_[2], x_[3], x_[1], attributes_.x.zero_point};
    ByteOutput output;
    output.row_step = y_[3] * y_pixel_;
    output.pixel_step = y_pixel_;
    output.residual_row_step = y_[3] * y_[1];
    output.residual_pixel_step = y_[1];
    output.channels = y_[1];
    output.bias = bias_.data();
    output.multiplier = multipliers_.data();
    output.bounds =
        step_bounds(attributes_.y, attributes_.conv.activation.low, attributes_.conv.activation.high);
    output.zero_point = attributes_.y.zero_point;
    output.residual_zero_point = attributes_.residual.zero_point;
    output.residual_scale = attributes_.residual.scale / attributes_.y.scale;
    const bool adds = inputs.size() > 3 && inputs[3].present();
    schedule_.run(
        packed_.data(), context,
        [&](std::int64_t tile, std::byte* v, int /*worker*/) {
          const WinogradTiles::Place at = schedule_.place(tile);
          ByteImage from = image;
          from.data = reinterpret_cast<const std::uint8_t*>(inputs[0].data) + at.image * image_bytes;
          byte_winograd()->input(from, at.row - window.pad_begin[0], at.column - window.pad_begin[1], at.rows,
                                 at.columns, v, schedule_.input_plane());
        },
        [&](std::int64_t tile, const std::byte* m, const WinogradSchedule::Outputs& part, int /*worker*/) {
          const WinogradTiles::Place at = schedule_.place(tile);
          const std::int64_t pixel = (at.image * y_[2] + at.row) * y_[3] + at.column;
          ByteOutput to = output;
          to.rows = at.rows;
          to.columns = at.columns;
          to.y = reinterpret_cast<std::uint8_t*>(outputs[0].data) + pixel * y_pixel_ + part.first;
          if (adds)
            to.residual = reinterpret_cast<const std::uint8_t*>(inputs[3].data) + pixel * y_[1] + part.first;
          to.channels = part.count;
          to.bias += part.first;
          to.multiplier += part.first;
          byte_winograd()->output(m, schedule_.output_plane(), to);
        });
  }

 private:
  // Panel by panel, so that no second copy of all transformed weights is needed.
  void pack(const Tensor& weights) {
    const std::int8_t* filters = weights.values<std::int8_t>().data();
    const std::int64_t channels = x_[1];
    const TilePanels& panels = schedule_.panels();
    const std::int64_t plane = panels.panel * channels;
    HostBuffer packed(schedule_.weight_bytes());
    std::vector<std::int16_t> u(static_cast<std::size_t>(schedule_.products() * plane));
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      transform_byte_filters(filters + p * panels.panel * channels * 9, panels.columns(p) * channels,
                             u.data(), plane);
      const TilePanels one(*s16_tiles(), panels.steps, panels.columns(p));
      for (int i = 0; i < schedule_.products(); ++i) {
        pack_s16_panel(one, 0, {u.data() + i * plane, channels, 1, 0, channels, 1}, schedule_.kept().steps(p),
                       packed.data() + schedule_.panel_offset(i, p));
      }
    }
    packed_ = SharedBuffer(std::move(packed));
  }

  QConvAttributes attributes_;
  Shape x_;
  Shape y_;
  std::int64_t y_pixel_;  // bytes from pixel to pixel
  WinogradSchedule schedule_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  SharedBuffer packed_;  // [products][panels]
};

// The largest magnitude of a sum without its bias, over all inputs.
std::int64_t largest_sum(const Tensor& weights, int zero_point) {
  const Tensor plain = to_layout(weights.view(), Layout::row_major);
  const std::int64_t depth = plain.desc().elements() / plain.shape()[0];
  const std::int8_t* w = plain.values<std::int8_t>().data();
  std::int64_t most = 0;
  for (std::int64_t o = 0; o < plain.shape()[0]; ++o) {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) sum += std::abs(int{*w++});
    most = std::max(most, sum);
  }
  return most * std::max(zero_point, 255 - zero_point);
}

WinogradLayer layer_of(const NodeSpec& spec, const KeptForTiles& direct) {
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  const WinogradSchedule schedule(x, byte_tiles(y), y[1], *s16_tiles(),
                                  kept_steps_of(to_layout(spec.constant(1)->view(), Layout::row_major)), 1,
                                  kPasses);
  return {x,
          y,
          s16_tiles()->lanes,
          direct_steps(y, direct.kernels, direct.steps),
          schedule.steps(),
          byte_winograd_rates(direct.kernels.isa)};
}

// Whatever its weights are.
Refusal refuse_form(const NodeSpec& spec) {
  if (byte_winograd() == nullptr) return "the instruction set has no vectors of 256 bits";
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
  const Window& window = attributes.conv.window;
  if (window.rank != 2) return "only two spatial dimensions are handled";
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (window.kernel[axis] != 3) return "not a 3x3 kernel";
    if (window.stride[axis] != 1 || window.dilation[axis] != 1) return "stride or dilation is not 1";
  }
  if (attributes.conv.groups != 1) return "more than one group";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (x.dtype != DType::u8 || y.dtype != DType::u8 ||
      (spec.has_input(3) && spec.inputs[3]->dtype != DType::u8))
    return "input, residual and output must be u8";
  if (!is_channels_last(x) || !is_channels_last(y) ||
      (spec.has_input(3) && !is_channels_last(*spec.inputs[3])))
    return "activations must be channels_last";
  if (y.elements() == 0) return "the output is empty";
  const WinogradTiles tiles = byte_tiles(y.shape);
  // Measured: what transforms cost is too much beside so few products.
  if (tiles.count() < kMinTiles)
    return fmt::format("{} tiles are too few for transformed weights to pay", tiles.count());
  if (x.shape[1] < kMinChannels || y.shape[1] < kMinChannels)
    return "too few channels for the transforms to pay";
  return std::nullopt;
}

Refusal refuse_winograd(const NodeSpec& spec) {
  if (Refusal reason = refuse_form(spec)) return reason;
  const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
  const std::int64_t sum = largest_sum(*spec.constant(1), attributes.x.zero_point);
  if (sum >= kByteWinogradSums)
    return fmt::format("sums may reach {}, of which {} bits are not kept", sum, 32 - 6);
  const KeptForTiles direct = kept_by_qconv_tile(spec);
  return refuse_beside_pruned(layer_of(spec, direct), direct.steps.share());
}

std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (refuse_form(spec)) return std::nullopt;
  return layer_of(spec, kept_by_qconv_tile(spec)).estimate();
}

}  // namespace

void register_cpu_qconv_winograd(Registry& registry) {
  Candidate candidate{"winograd_f4x4", refuse_winograd,
                      [](const NodeSpec& spec) { return std::make_unique<QConvWinograd>(spec); }};
  candidate.estimate = estimate;
  candidate.kept_share = kept_share_of;
  candidate.fusions.writes_strided_rows = [](const NodeSpec&) { return true; };
  candidate.fusions.overwrites = [](const NodeSpec&, std::size_t input) { return input == 3; };
  registry.add(QConv::kType, DeviceKind::cpu, std::move(candidate));
}

}  // namespace pipit::internal
