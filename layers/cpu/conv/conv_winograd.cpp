#include "layers/cpu/conv/conv_winograd.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "engine/graph/shared_buffer.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/conv_tile.h"
#include "layers/cpu/conv/winograd.h"
#include "layers/cpu/conv/winograd_cost.h"
#include "layers/cpu/conv/winograd_schedule.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_pack.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kLine = 16;  // floats in a cache line

KeptSteps kept_steps_of(const NodeSpec& spec, const TileKernels& kernels) {
  const Tensor& weights = *spec.constant(1);
  return winograd_kept_steps(kernels, weights.values<float>().data(), weights.shape()[0], weights.shape()[1]);
}

class ConvWinograd final : public Kernel {
 public:
  ConvWinograd(const NodeSpec& spec, const WinogradTransforms& transforms, const TileKernels& kernels)
      : transforms_(transforms),
        activation_(layer_as<Conv>(spec.layer).attributes().activation),
        epilogue_(1, spec.fusion.followers),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        schedule_(x_, WinogradTiles(y_, transforms.outputs, WinogradBorder::whole), y_[1], kernels,
                  kept_steps_of(spec, kernels), spec.threads),
        isa_(kernels.isa),
        type_(spec.inputs[0]->dtype),
        narrow_(is_stored_float(type_)),
        threads_(spec.threads) {
    const Window& window = layer_as<Conv>(spec.layer).attributes().window;
    pad_top_ = window.pad_begin[0];
    pad_left_ = window.pad_begin[1];
    y_pixel_ = y_[1];
    if (const std::size_t stride = spec.fusion.row_stride; stride != 0)
      y_pixel_ = static_cast<std::int64_t>(stride / dtype_bytes(spec.outputs[0].dtype));
    if (narrow_) {
      const std::int64_t m = transforms.outputs;
      stage_ =
          ceil_div(std::max(transforms.inputs * transforms.inputs * x_[1], 2 * m * m * y_[1]), kLine) * kLine;
    }
    pack(*spec.constant(1), kernels);
  }

  std::size_t scratch_bytes() const override {
    return schedule_.scratch_bytes() + static_cast<std::size_t>(stage_ * threads_) * sizeof(float);
  }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  double kept_share() const override { return schedule_.kept().share(); }
  std::vector<KernelWork> work() const override { return {{schedule_.macs(), Products::fp32, isa_}}; }
  std::size_t packed_bytes() const override { return packed_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const bool adds = inputs.size() > 3 && inputs[3].present();
    const Operands operands{inputs[0].data, optional_data<float>(inputs, 2), adds ? inputs[3].data : nullptr,
                            outputs[0].data};
    auto* stages = reinterpret_cast<float*>(context.scratch + schedule_.scratch_bytes());
    schedule_.run(
        packed_.data(), context,
        [&](std::int64_t tile, std::byte* v, int worker) {
          transform_input(operands, tile, reinterpret_cast<float*>(v), stages + worker * stage_);
        },
        [&](std::int64_t tile, const std::byte* m, const WinogradSchedule::Outputs& /*outputs*/, int worker) {
          transform_output(operands, tile, reinterpret_cast<const float*>(m), stages + worker * stage_);
        });
    if (!narrow_) epilogue_.apply_all(outputs[0].as<float>(), y_.elements(), y_[1], context.pool);
  }

 private:
  struct Operands {
    const std::byte* x;  // f32, f16 or bf16, like the residual and y
    const float* bias;
    const std::byte* residual;
    std::byte* y;
  };
  // Panel by panel, so that no second copy of all transformed weights is needed.
  void pack(const Tensor& weights, const TileKernels& kernels) {
    const float* filters = weights.values<float>().data();
    const std::int64_t channels = x_[1];
    const TilePanels& panels = schedule_.panels();
    const std::int64_t plane = panels.panel * channels;
    const int products = schedule_.products();
    HostBuffer packed(schedule_.weight_bytes());
    const HostBuffer transformed(static_cast<std::size_t>(products * plane) * sizeof(float));
    float* u = reinterpret_cast<float*>(transformed.data());
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      transforms_.filters(filters + p * panels.panel * channels * 9, panels.columns(p) * channels, u, plane);
      const TilePanels one(kernels, channels, panels.columns(p));
      for (int i = 0; i < products; ++i) {
        pack_f32_panel(one, 0, {u + i * plane, channels, 1, 0, channels, 1}, schedule_.kept().steps(p),
                       packed.data() + schedule_.panel_offset(i, p));
      }
    }
    packed_ = SharedBuffer(std::move(packed));
  }

  using Place = WinogradTiles::Place;
  static std::int64_t floats(std::int64_t bytes) { return bytes / static_cast<std::int64_t>(sizeof(float)); }

  void transform_input(const Operands& operands, std::int64_t tile, float* v, float* stage) const {
    Place at = schedule_.place(tile);
    at.row -= pad_top_;
    at.column -= pad_left_;
    WinogradImage image{reinterpret_cast<const float*>(operands.x) + at.image * x_[1] * x_[2] * x_[3], x_[2],
                        x_[3], x_[1]};
    if (narrow_) image = widen_inputs(operands.x, at, stage);
    transforms_.input(image, at.row, at.column, v, floats(schedule_.input_plane()));
  }

  // What a tile reads as an image of its own, of which `at` becomes the place.
  WinogradImage widen_inputs(const std::byte* x, Place& at, float* stage) const {
    const std::int64_t row = std::max<std::int64_t>(at.row, 0);
    const std::int64_t column = std::max<std::int64_t>(at.column, 0);
    const std::int64_t rows = std::max<std::int64_t>(0, std::min(at.row + transforms_.inputs, x_[2]) - row);
    const std::int64_t columns =
        std::max<std::int64_t>(0, std::min(at.column + transforms_.inputs, x_[3]) - column);
    const std::int64_t count = columns * x_[1];
    for (std::int64_t i = 0; i < rows; ++i) {
      widen_row(type_, x, ((at.image * x_[2] + row + i) * x_[3] + column) * x_[1], stage + i * count, count);
    }
    at.row -= row;
    at.column -= column;
    return {stage, rows, columns, x_[1]};
  }

  void transform_output(const Operands& operands, std::int64_t tile, const float* m, float* stage) const {
    const Place at = schedule_.place(tile);
    const std::int64_t pixel = (at.image * y_[2] + at.row) * y_[3] + at.column;
    WinogradOutput output;
    output.bias = operands.bias;
    output.rows = at.rows;
    output.columns = at.columns;
    output.channels = y_[1];
    output.clamp = activation_;
    output.pixel_step = narrow_ ? y_[1] : y_pixel_;
    output.row_step = narrow_ ? output.columns * y_[1] : y_[3] * y_pixel_;
    if (narrow_) {
      output.data = stage;
      if (operands.residual != nullptr) output.residual = widen_residual(operands, pixel, output);
    } else {
      output.data = reinterpret_cast<float*>(operands.y) + pixel * y_pixel_;
      if (operands.residual != nullptr)
        output.residual = reinterpret_cast<const float*>(operands.residual) + pixel * y_pixel_;
    }
    transforms_.output(m, floats(schedule_.output_plane()), output);
    if (narrow_) narrow_outputs(output, operands.y, pixel * y_pixel_);
  }

  // After the place of the outputs.
  const float* widen_residual(const Operands& operands, std::int64_t pixel,
                              const WinogradOutput& output) const {
    float* to = output.data + output.rows * output.row_step;
    for (std::int64_t i = 0; i < output.rows; ++i) {
      widen_row(type_, operands.residual, (pixel + i * y_[3]) * y_[1], to + i * output.row_step,
                output.row_step);
    }
    return to;
  }

  void narrow_outputs(const WinogradOutput& output, std::byte* y, std::int64_t first) const {
    for (std::int64_t i = 0; i < output.rows; ++i) {
      for (std::int64_t j = 0; j < output.columns; ++j) {
        float* from = output.data + i * output.row_step + j * output.pixel_step;
        if (!epilogue_.empty()) epilogue_.apply(from, 0, {y_[1]});
        narrow_row(from, type_, y, first + (i * y_[3] + j) * y_pixel_, y_[1]);
      }
    }
  }

  const WinogradTransforms& transforms_;
  Clamp activation_;
  Epilogue epilogue_;
  Shape x_;
  Shape y_;
  std::int64_t y_pixel_ = 0;  // elements from pixel to pixel
  WinogradSchedule schedule_;
  std::int64_t pad_top_ = 0;
  std::int64_t pad_left_ = 0;
  Isa isa_;
  DType type_;   // of x, the residual and y
  bool narrow_;  // it is stored in 16 bits
  int threads_;
  std::int64_t stage_ = 0;  // 16 bits: floats of one tile's inputs, or of its outputs and residuals
  SharedBuffer packed_;     // [products][panels]
};

WinogradLayer layer_of(const NodeSpec& spec, const WinogradTransforms& transforms, const TileKernels& kernels,
                       const KeptSteps& direct) {
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  const TileKernels* stored = stored_tiles(spec.inputs[0]->dtype);
  const WinogradSchedule schedule(x, WinogradTiles(y, transforms.outputs, WinogradBorder::whole), y[1],
                                  kernels, kept_steps_of(spec, kernels), 1);
  return {x,
          y,
          kernels.lanes,
          direct_steps(y, stored != nullptr ? *stored : kernels, direct),
          schedule.steps(),
          float_winograd_rates(transforms.outputs, kernels.isa)};
}

// Whatever its weights are.
Refusal refuse_form(const NodeSpec& spec, const WinogradTransforms& transforms,
                    const WinogradOptions& options) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (spec.has_input(2) && spec.inputs[2]->dtype != DType::f32) return "the bias must be f32";
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const Window& window = attributes.window;
  if (window.rank != 2) return "only two spatial dimensions are handled";
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (window.kernel[axis] != 3) return "not a 3x3 kernel";
    if (window.stride[axis] != 1 || window.dilation[axis] != 1) return "stride or dilation is not 1";
  }
  if (attributes.groups != 1) return "more than one group";
  const Tensor* weights = spec.constant(1);
  if (weights == nullptr) return "weights are computed at run time";
  if (!is_channels_last(*spec.inputs[0])) return "the input must be channels_last";
  if (!is_channels_last(spec.outputs[0])) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  const Shape& y = spec.outputs[0].shape;
  const std::int64_t channels = spec.inputs[0]->shape[1];
  const WinogradTiles tiles(y, transforms.outputs, WinogradBorder::whole);
  if (!options.everywhere) {
    if (tiles.count() < 25)
      return fmt::format("{} tiles are too few for transformed weights to pay", tiles.count());
    if (channels < 8 || y[1] < 8) return "too few channels for the transforms to pay";
  }
  if (!is_row_major(weights->desc())) return "the weights must be row_major";
  return std::nullopt;
}

Refusal refuse_winograd(const NodeSpec& spec, const WinogradTransforms& transforms,
                        const WinogradOptions& options) {
  if (Refusal reason = refuse_form(spec, transforms, options)) return reason;
  if (!options.everywhere) {
    const KeptSteps direct = kept_by_conv_tile(spec);
    const WinogradLayer layer = layer_of(spec, transforms, f32_tiles(options.isa), direct);
    if (Refusal reason = refuse_beside_pruned(layer, direct.share())) return reason;
  }
  const Tensor& weights = *spec.constant(1);
  const double error =
      winograd_error(transforms, weights.values<float>().data(), weights.shape()[0], weights.shape()[1]);
  if (!(error <= options.max_error)) {
    return fmt::format(
        "inexact with these weights: relative error {:.1e} on a sample, at most {:.0e} allowed", error,
        kMaxWinogradError);
  }
  return std::nullopt;
}

std::optional<Estimate> estimate(const NodeSpec& spec, const WinogradTransforms& transforms,
                                 const WinogradOptions& options) {
  if (refuse_form(spec, transforms, options)) return std::nullopt;
  return layer_of(spec, transforms, f32_tiles(options.isa), kept_by_conv_tile(spec)).estimate();
}

}  // namespace

void add_winograd(Registry& registry, int m, const WinogradOptions& options) {
  const WinogradTransforms* transforms = &winograd_transforms(m);
  const TileKernels* kernels = &f32_tiles(options.isa);
  Candidate candidate;
  candidate.name = fmt::format("winograd_f{}", transforms->name);
  candidate.refuse = [transforms, options](const NodeSpec& spec) {
    return refuse_winograd(spec, *transforms, options);
  };
  candidate.create = [transforms, kernels](const NodeSpec& spec) {
    return std::make_unique<ConvWinograd>(spec, *transforms, *kernels);
  };
  candidate.estimate = [transforms, options](const NodeSpec& spec) {
    return estimate(spec, *transforms, options);
  };
  candidate.kept_share = [kernels](const NodeSpec& spec) { return kept_steps_of(spec, *kernels).share(); };
  candidate.fusions.epilogue = fuses_image_epilogue;
  candidate.fusions.writes_strided_rows = [](const NodeSpec& spec) {
    // In f32 residuals and epilogues go through y as one run of elements.
    return is_stored_float(spec.outputs[0].dtype) || (!spec.has_input(3) && spec.fusion.followers.empty());
  };
  candidate.fusions.overwrites = [](const NodeSpec&, std::size_t input) { return input == 3; };
  registry.add(Conv::kType, DeviceKind::cpu, std::move(candidate));
}

void register_cpu_conv_winograd(Registry& registry) {
  for (const int m : {4, 2}) add_winograd(registry, m, {});
}

}  // namespace pipit::internal
