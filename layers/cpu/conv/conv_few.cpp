// Convolution of few outputs on NHWC data: dot products along the channels, where a register of outputs would be mostly
// empty.
#include <algorithm>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/window_axes.h"
#include "layers/cpu/conv/window_conv.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/vector/channel_rows.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

WindowAxes axes_of(const NodeSpec& spec) {
  return window_axes(layer_as<Conv>(spec.layer).attributes().window, spec.inputs[0]->shape,
                     spec.outputs[0].shape);
}

// Elements of a run: neighbouring taps are one where nothing lies between them.
std::int64_t run_of(const WindowAxes& axes, std::int64_t channels) {
  return axes.width.dilation == 1 ? axes.width.kernel * channels : channels;
}

// Whether dot products are faster than a panel of outputs: registers that each pixel takes, whose lanes are added up in
// the end, against those of a panel that is as wide whatever it holds.
bool pays(const WindowAxes& axes, std::int64_t channels, std::int64_t outputs) {
  constexpr double kAddLanes = 6;
  const auto lanes = static_cast<std::int64_t>(row_kernels().lanes);
  const std::int64_t taps = axes.height.kernel * axes.width.kernel;
  const std::int64_t run = run_of(axes, channels);
  const std::int64_t runs = taps * channels / run;
  const double dots =
      static_cast<double>(outputs) * (0.6 * static_cast<double>(runs * ceil_div(run, lanes)) + kAddLanes);
  const auto panel = 0.5 * static_cast<double>(ceil_div(outputs, lanes) * taps * channels);
  return dots < 0.8 * panel;
}

Refusal refuse_few_shape(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  if (x.shape.rank() > 4) return "only one or two spatial dimensions are handled";
  if (attributes.groups != 1) return "several groups";
  if (y.elements() == 0 || x.elements() == 0) return "an operand is empty";
  if (!pays(axes_of(spec), x.shape[1], y.shape[1])) return "as many outputs as fill a register";
  return std::nullopt;
}

Refusal refuse_few(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  return refuse_window_conv(spec, refuse_few_shape);
}

class FewOutputs final : public Kernel {
 public:
  explicit FewOutputs(const NodeSpec& spec)
      : activation_(layer_as<Conv>(spec.layer).attributes().activation),
        epilogue_(1, spec.fusion.followers),
        axes_(axes_of(spec)),
        images_(spec.inputs[0]->shape[0]),
        inputs_(spec.inputs[0]->shape[1]),
        outputs_(spec.outputs[0].shape[1]),
        joined_(axes_.width.dilation == 1),
        weights_(to_layout(spec.constant(1)->view(), Layout::channels_last)),
        zeros_(static_cast<std::size_t>(outputs_), 0.0F) {
    // Outputs whose taps all lie inside the row.
    const WindowAxis& width = axes_.width;
    while (inside_begin_ < width.output && width.taps(inside_begin_).count() < width.kernel) ++inside_begin_;
    inside_end_ = inside_begin_;
    while (inside_end_ < width.output && width.taps(inside_end_).count() == width.kernel) ++inside_end_;
  }

  bool reads_constant(std::size_t index) const override { return index != 1; }
  std::vector<KernelWork> work() const override {
    const std::int64_t taps = axes_.height.taps_of_all() * axes_.width.taps_of_all();
    return {{images_ * taps * inputs_ * outputs_, Products::fp32, f32_tiles().isa}};
  }
  std::size_t packed_bytes() const override { return weights_.desc().bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const float* x = inputs[0].as<float>();
    const float* bias = optional_data<float>(inputs, 2);
    const float* residual = optional_data<float>(inputs, 3);
    float* y = outputs[0].as<float>();
    const std::int64_t parts = ceil_div(axes_.width.output, kPart);
    const std::int64_t tasks = images_ * axes_.height.output * parts;
    context.pool.parallel_for(tasks, [&](std::int64_t task, int /*worker*/) {
      const std::int64_t row = task / parts;
      const std::int64_t begin = task % parts * kPart;
      const std::int64_t end = std::min(begin + kPart, axes_.width.output);
      compute(x, bias != nullptr ? bias : zeros_.data(), y, row, begin, end);
      const std::int64_t at = (row * axes_.width.output + begin) * outputs_;
      finish_row(y + at, (end - begin) * outputs_, nullptr, residual != nullptr ? residual + at : nullptr,
                 activation_);
      if (!epilogue_.empty()) epilogue_.apply(y + at, 0, {outputs_, end - begin, outputs_});
    });
  }

 private:
  static constexpr std::int64_t kPart = 512;  // pixels of a task

  // Outputs [begin, end) of a row, which counts through images, with their bias.
  void compute(const float* x, const float* bias, float* y, std::int64_t row, std::int64_t begin,
               std::int64_t end) const {
    const WindowAxis& width = axes_.width;
    const std::int64_t line = width.input * inputs_;
    const TapRange h = axes_.height.taps(row % axes_.height.output);
    const float* image = x + row / axes_.height.output * axes_.height.input * line;
    DotTile tile;
    tile.x_step = width.stride * inputs_;
    tile.x_row = axes_.height.dilation * line;
    tile.x_run = width.dilation * inputs_;
    tile.rows = h.count();
    tile.weights_row = width.kernel * inputs_;
    tile.weights_output = axes_.height.kernel * tile.weights_row;
    tile.y_step = outputs_;
    const std::int64_t first = (h.start + h.begin * axes_.height.dilation) * line;
    const float* weights = weights_.values<float>().data() + h.begin * tile.weights_row;
    for (std::int64_t column = begin; column < end;) {
      const TapRange w = width.taps(column);
      const bool several =
          column >= inside_begin_ && column + DotKernels::kPixels <= std::min(inside_end_, end);
      tile.x = image + first + (w.start + w.begin * width.dilation) * inputs_;
      tile.runs = joined_ ? std::min<std::int64_t>(w.count(), 1) : w.count();
      tile.run = joined_ ? w.count() * inputs_ : inputs_;
      float* to = y + (row * width.output + column) * outputs_;
      for (std::int64_t o = 0; o < outputs_; o += DotKernels::kOutputs) {
        tile.weights = weights + w.begin * inputs_ + o * tile.weights_output;
        tile.bias = bias + o;
        tile.y = to + o;
        const auto count = std::min<std::int64_t>(DotKernels::kOutputs, outputs_ - o);
        row_kernels().dots.tile[several ? 1 : 0][count - 1](tile);
      }
      column += several ? DotKernels::kPixels : 1;
    }
  }

  Clamp activation_;
  Epilogue epilogue_;
  WindowAxes axes_;
  std::int64_t images_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  bool joined_;     // taps of a row are one run
  Tensor weights_;  // [O, taps, C] in memory
  std::vector<float> zeros_;
  std::int64_t inside_begin_ = 0;
  std::int64_t inside_end_ = 0;
};

}  // namespace

void register_cpu_conv_few(Registry& registry) {
  Candidate few{"few_outputs", refuse_few,
                [](const NodeSpec& spec) { return std::make_unique<FewOutputs>(spec); }};
  few.fusions.epilogue = fuses_image_epilogue;
  registry.add(Conv::kType, DeviceKind::cpu, std::move(few));
}

}  // namespace pipit::internal
