// Convolution on the register-tile kernel: no patch matrix. The input is read where it lies, or from a copy with
// borders that stays in the second-level cache.
#include <unistd.h>

#include <algorithm>

#include "layers/conv.h"
#include "layers/cpu/conv_input.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/tile_loop.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

constexpr std::int64_t kFloat = sizeof(float);
// Fewer channels leave most lanes of a vector empty.
constexpr std::int64_t kLeastGroup = 8;
// The last tasks to finish leave few workers idle.
constexpr std::int64_t kTasksPerThread = 8;
// Of one copied input row; wider ones are padding without end.
constexpr double kMostRowBytes = 1 << 26;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Half of a core's second-level cache: what a worker may want to keep there.
std::int64_t cache_budget() {
  static const std::int64_t bytes = [] {
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::int64_t{l2 > 0 ? l2 : 1 << 20} / 2;
  }();
  return bytes;
}

class ConvTile final : public Kernel {
 public:
  explicit ConvTile(const NodeSpec& spec)
      : input_(*spec.inputs[0], spec.outputs[0].shape, layer_as<Conv>(spec.layer).attributes().window,
               layer_as<Conv>(spec.layer).attributes().groups, 2 * f32_tiles().group) {
    const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
    const Shape& y = spec.outputs[0].shape;
    images_ = y[0];
    input_bytes_ = spec.inputs[0]->elements() / images_ * kFloat;
    channels_ = y[1];
    height_ = y.rank() == 4 ? y[2] : 1;
    width_ = y[y.rank() - 1];
    loop_.kernels = &f32_tiles();
    loop_.groups = attributes.groups;
    const auto segments = static_cast<std::int64_t>(input_.segments().size());
    loop_.panels = TilePanels(*loop_.kernels, segments * input_.run(), channels_ / attributes.groups);
    loop_.a_group = input_.group_step();
    loop_.segments = input_.segments().data();
    loop_.segment_count = static_cast<std::int32_t>(segments);
    loop_.run = static_cast<std::int32_t>(input_.run());
    loop_.clamp = attributes.activation;
    pack(*spec.constant(1), attributes.window.taps());
    cut(spec.threads);
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Operands operands{inputs[0].data, optional_data<float>(inputs, 2),
                            reinterpret_cast<const std::byte*>(optional_data<float>(inputs, 3)),
                            outputs[0].data};
    if (panels_outside_) {
      run_panels(operands, context);
    } else {
      run_bands(operands, context);
    }
  }

 private:
  struct Operands {
    const std::byte* x;
    const float* bias;
    const std::byte* residual;
    std::byte* y;
  };
  // Output rows of one image, or whole images.
  struct Band {
    std::int64_t image;
    std::int64_t images;
    std::int64_t row;
    std::int64_t rows;  // of each image
  };

  void pack(const Tensor& weights, std::int64_t taps) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const std::int64_t channels = plain.shape()[1];
    WeightView view{plain.values<float>().data(), channels * taps, 1, 0, channels * taps, 1};
    if (input_.channels_last()) view = {view.data, channels * taps, taps, 1, channels, taps};
    packed_ = HostBuffer(static_cast<std::size_t>(loop_.packed_bytes()));
    for (std::int64_t g = 0; g < loop_.groups; ++g) {
      for (std::int64_t p = 0; p < loop_.panels.count(); ++p) {
        pack_f32_panel(loop_.panels, p, view, packed_.data() + g * loop_.panels.bytes());
      }
      view.data += loop_.panels.outputs * view.output_stride;
    }
  }

  // Two orders. Where the weights fit into the cache beside the pixels, each worker takes bands of pixels through all
  // panels. Else, or where there are few pixels, all workers take panels through all pixels of one large band.
  void cut(int threads) {
    const std::int64_t budget = cache_budget();
    const std::int64_t rows = images_ * height_;
    const std::int64_t tiles = ceil_div(width_ * rows, 2 * loop_.kernels->group);
    panels_outside_ = loop_.packed_bytes() > budget || tiles < kTasksPerThread * threads;
    const std::int64_t most_rows = panels_outside_ ? rows : ceil_div(rows, kTasksPerThread * threads);
    // As many rows as both limits allow, in bands of nearly equal size.
    const std::int64_t fitting = input_.output_rows(budget / input_.copied_row_bytes());
    band_rows_ = std::clamp<std::int64_t>(std::min(most_rows, fitting), 1, height_);
    band_rows_ = ceil_div(height_, ceil_div(height_, band_rows_));
    band_images_ = 1;
    if (band_rows_ == height_) {
      const std::int64_t image_bytes = input_.copied_rows(height_) * input_.copied_row_bytes();
      band_images_ =
          std::clamp<std::int64_t>(std::min(most_rows / height_, budget / image_bytes), 1, images_);
    }
    copy_bytes_ =
        input_.copied()
            ? (band_images_ * input_.copied_rows(band_rows_) * input_.copied_row_bytes() + 63) / 64 * 64
            : 0;
    scratch_bytes_ = static_cast<std::size_t>(copy_bytes_ * (panels_outside_ ? 1 : threads));
    splits_ = panels_outside_
                  ? std::max<std::int64_t>(1, ceil_div(kTasksPerThread * threads, loop_.panel_count()))
                  : 1;
  }

  std::int64_t bands_per_image() const { return ceil_div(height_, band_rows_); }
  std::int64_t bands() const { return ceil_div(images_, band_images_) * bands_per_image(); }

  Band band(std::int64_t index) const {
    const std::int64_t image = index / bands_per_image() * band_images_;
    const std::int64_t row = index % bands_per_image() * band_rows_;
    return {image, std::min(band_images_, images_ - image), row, std::min(band_rows_, height_ - row)};
  }

  // Where the tiles of a band find their operands. `copied`: the copy of its input.
  TileBand tile_band(const Operands& operands, const Band& b, const std::byte* copied) const {
    TileBand t;
    t.width = width_;
    t.rows = b.images * b.rows;
    t.rows_per_image = b.rows;
    t.a_pixel = input_.pixel_step();
    t.a_row = input_.row_step();
    t.a_image = input_.image_step();
    t.a = input_.copied() ? copied : operands.x + b.image * t.a_image + b.row * t.a_row;
    t.c_pixel = channels_ * kFloat;
    const std::int64_t offset = (b.image * height_ + b.row) * width_ * t.c_pixel;
    t.c = operands.y + offset;
    if (operands.residual != nullptr) t.residual = operands.residual + offset;
    if (input_.evenly_spaced()) {
      t.width *= t.rows;
      t.rows = 1;
    }
    return t;
  }

  // Rows [begin, end) of the copy of a band, counted through its images.
  void copy(const std::byte* x, const Band& b, std::int64_t begin, std::int64_t end, std::byte* to) const {
    const std::int64_t image_rows = input_.copied_rows(b.rows);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t image = row / image_rows;
      input_.copy(x + (b.image + image) * input_bytes_, b.row, row % image_rows, row % image_rows + 1,
                  to + image * input_.image_step());
    }
  }

  void run_bands(const Operands& operands, const RunContext& context) const {
    context.pool.parallel_for(bands(), [&](std::int64_t index, int worker) {
      const Band b = band(index);
      std::byte* copied = context.scratch + worker * copy_bytes_;
      if (input_.copied()) copy(operands.x, b, 0, b.images * input_.copied_rows(b.rows), copied);
      const TileBand t = tile_band(operands, b, copied);
      loop_.run_tiles(t, {0, loop_.tiles(t)}, {0, loop_.panel_count()}, packed_.data(), operands.bias);
    });
  }

  void run_panels(const Operands& operands, const RunContext& context) const {
    const std::int64_t panels = loop_.panel_count();
    for (std::int64_t index = 0; index < bands(); ++index) {
      const Band b = band(index);
      if (input_.copied()) {
        context.pool.parallel_for(
            b.images * input_.copied_rows(b.rows),
            [&](std::int64_t row, int /*worker*/) { copy(operands.x, b, row, row + 1, context.scratch); });
      }
      const TileBand t = tile_band(operands, b, context.scratch);
      const std::int64_t tiles = loop_.tiles(t);
      const std::int64_t splits = std::min(splits_, tiles);
      context.pool.parallel_for(panels * splits, [&](std::int64_t task, int /*worker*/) {
        const std::int64_t panel = task / splits;
        // The panel that this worker probably takes next.
        const std::int64_t next = panel + std::max<std::int64_t>(1, context.pool.size() / splits);
        const bool fetch = next < panels && panels_outside_;
        loop_.run_tiles(t, TileRange{0, tiles}.part(task % splits, splits), {panel, panel + 1},
                        packed_.data(), operands.bias, fetch ? packed_.data() + panel_offset(next) : nullptr,
                        fetch ? loop_.panels.steps * loop_.panels.panel * kFloat : 0);
      });
    }
  }

  std::int64_t panel_offset(std::int64_t panel) const {
    return panel / loop_.panels.count() * loop_.panels.bytes() +
           loop_.panels.offset(panel % loop_.panels.count());
  }

  ConvInput input_;
  TileLoop loop_;
  std::int64_t images_ = 0;
  std::int64_t channels_ = 0;
  std::int64_t height_ = 0;
  std::int64_t width_ = 0;
  std::int64_t input_bytes_ = 0;  // of one image
  HostBuffer packed_;
  bool panels_outside_ = false;
  std::int64_t band_rows_ = 0;
  std::int64_t band_images_ = 1;
  std::int64_t splits_ = 1;      // tasks that share a panel
  std::int64_t copy_bytes_ = 0;  // of one band
  std::size_t scratch_bytes_ = 0;
};

Refusal refuse_tile(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  const int rank = x.shape.rank();
  if (rank > 4) return "only one or two spatial dimensions are handled";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (attributes.groups > 1 &&
      (x.shape[1] / attributes.groups < kLeastGroup || y.shape[1] / attributes.groups < kLeastGroup)) {
    return "fewer than 8 channels in a group";
  }
  if (y.elements() == 0) return "the output is empty";
  const Window& window = attributes.window;
  const double columns = static_cast<double>(y.shape[rank - 1]) *
                             static_cast<double>(window.stride[static_cast<std::size_t>(rank - 3)]) +
                         static_cast<double>(window.span(rank - 3));
  if (columns * static_cast<double>(x.shape[1]) * kFloat > kMostRowBytes)
    return "a padded input row is too long";
  const ConvInput input(x, y.shape, window, attributes.groups, 2 * f32_tiles().group);
  if (input.segments().empty()) return "a filter reaches over more than 2 GiB of input";
  return std::nullopt;
}

}  // namespace

void register_cpu_conv_tile(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cpu,
               {"tile", refuse_tile, [](const NodeSpec& spec) { return std::make_unique<ConvTile>(spec); }});
}

}  // namespace pipit
