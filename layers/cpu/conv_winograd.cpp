#include "layers/cpu/conv_winograd.h"
#include "layers/cpu/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "layers/conv.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/epilogue.h"
#include "layers/cpu/row_kernels.h"
#include "layers/cpu/tile_kernel.h"
#include "layers/cpu/tile_pack.h"
#include "layers/cpu/winograd.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

constexpr std::int64_t kLine = 16;  // floats in a cache line

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The tiles that cover the outputs of all images, counted row by row and image by image.
struct TileGrid {
  std::int64_t rows = 0;  // per image
  std::int64_t columns = 0;
  std::int64_t count = 0;

  TileGrid() = default;
  TileGrid(const Shape& output, int m)
      : rows(ceil_div(output[2], m)), columns(ceil_div(output[3], m)), count(output[0] * rows * columns) {}
};

// A stage of the computation: transformed tiles in planes, one per product; in each, one row of channels per tile.
struct Planes {
  std::int64_t row = 0;  // floats from tile to tile
  std::int64_t plane = 0;
  std::int64_t floats = 0;

  Planes() = default;
  Planes(std::int64_t tiles, std::int64_t channels, int products) {
    // Rows and planes whose distance is a multiple of 1 KiB or more would compete for the same few sets of the
    // first-level cache.
    row = ceil_div(channels, kLine) * kLine;
    if (row % (16 * kLine) == 0) row += kLine;
    plane = tiles * row;
    if (plane / kLine % 2 == 0) plane += kLine;
    floats = plane * products;
  }
};

class ConvWinograd final : public Kernel {
 public:
  ConvWinograd(const NodeSpec& spec, const WinogradTransforms& transforms, const TileKernels& kernels)
      : transforms_(transforms),
        kernels_(kernels),
        activation_(layer_as<Conv>(spec.layer).attributes().activation),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        grid_(y_, transforms.outputs),
        panels_(kernels, x_[1], y_[1]),
        half_(spec.inputs[0]->dtype == DType::f16),
        threads_(spec.threads) {
    const Window& window = layer_as<Conv>(spec.layer).attributes().window;
    pad_top_ = window.pad_begin[0];
    pad_left_ = window.pad_begin[1];
    adds_ = spec.has_input(3);
    y_pixel_ = y_[1];
    cut(spec.threads);
    if (half_) {
      const std::int64_t m = transforms.outputs;
      stage_ =
          ceil_div(std::max(transforms.inputs * transforms.inputs * x_[1], 2 * m * m * y_[1]), kLine) * kLine;
    }
    pack(*spec.constant(1));
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(workspace() * workspaces_ + stage_ * threads_) * sizeof(float);
  }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  bool absorb(const NodeSpec& next) override { return epilogue_.absorb(next); }
  bool may_overwrite(std::size_t index) const override { return index == 3 && adds_; }
  bool write_rows_apart(std::size_t stride) override {
    // In f32 both go through y as one run of elements.
    if (!half_ && (adds_ || !epilogue_.empty())) return false;
    y_pixel_ = static_cast<std::int64_t>(stride / (half_ ? sizeof(Half) : sizeof(float)));
    return true;
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const bool adds = inputs.size() > 3 && inputs[3].present();
    const Operands operands{inputs[0].data, optional_data<float>(inputs, 2), adds ? inputs[3].data : nullptr,
                            outputs[0].data};
    convolve(operands, context);
    if (!half_) epilogue_.apply_all(outputs[0].as<float>(), y_.elements(), y_[1], context.pool);
  }

 private:
  struct Operands {
    const std::byte* x;  // f32 or f16, like the residual and y
    const float* bias;
    const std::byte* residual;
    std::byte* y;
  };
  // Floats from one workspace to the next.
  std::int64_t workspace() const {
    const auto bytes = static_cast<std::size_t>(v_.floats + m_.floats) * sizeof(float);
    return static_cast<std::int64_t>(worker_stride(bytes) / sizeof(float));
  }
  // A tile's first output, or its first input, which may lie outside.
  struct Place {
    std::int64_t image, row, column;
  };
  Place place(std::int64_t tile) const {
    const std::int64_t m = transforms_.outputs;
    return {tile / (grid_.columns * grid_.rows), tile / grid_.columns % grid_.rows * m,
            tile % grid_.columns * m};
  }

  void convolve(const Operands& operands, const RunContext& context) const {
    float* scratch = reinterpret_cast<float*>(context.scratch);
    const std::int64_t chunks = ceil_div(grid_.count, chunk_);
    const std::int64_t products = transforms_.products() * panels_.count();
    float* stages = scratch + workspace() * workspaces_;
    if (!shared_) {
      context.pool.parallel_for(chunks, [&](std::int64_t chunk, int worker) {
        float* v = scratch + worker * workspace();
        float* stage = stages + worker * stage_;
        const std::int64_t first = chunk * chunk_;
        const std::int64_t end = std::min(grid_.count, first + chunk_);
        for (std::int64_t t = first; t < end; ++t)
          transform_input(operands, t, v + (t - first) * v_.row, stage);
        multiply(v, v + v_.floats, end - first, 0, products);
        for (std::int64_t t = first; t < end; ++t)
          transform_output(operands, t, v + v_.floats + (t - first) * m_.row, stage);
      });
      return;
    }
    float* v = scratch;
    float* m = scratch + v_.floats;
    for (std::int64_t first = 0; first < grid_.count; first += chunk_) {
      const std::int64_t tiles = std::min(grid_.count - first, chunk_);
      context.pool.parallel_for(tiles, [&](std::int64_t t, int worker) {
        transform_input(operands, first + t, v + t * v_.row, stages + worker * stage_);
      });
      context.pool.parallel_for(product_tasks_, [&](std::int64_t task, int) {
        multiply(v, m, tiles, products * task / product_tasks_, products * (task + 1) / product_tasks_);
      });
      context.pool.parallel_for(tiles, [&](std::int64_t t, int worker) {
        transform_output(operands, first + t, m + t * m_.row, stages + worker * stage_);
      });
    }
  }

  // Decides how many tiles are in work at a time, and whether each worker takes chunks of its own through all stages, in
  // its second-level cache, or all workers share one chunk, stage by stage. Sharing sends the transformed tiles through
  // the third-level cache, but reads all weights once per chunk and not once per worker; it pays where weights are many
  // and tiles few. No output depends on the choice. Costs are in bytes that a worker could read from the third-level
  // cache in the time.
  void cut(int threads) {
    const int products = transforms_.products();
    const std::int64_t weight_bytes = panels_.bytes() * products;
    const std::int64_t tile_macs = products * x_[1] * y_[1];
    const std::int64_t tile_bytes =
        (Planes(1, x_[1], products).floats + Planes(1, y_[1], products).floats) * 4;
    const std::int64_t tiles = std::max<std::int64_t>(1, grid_.count);
    const auto product_cost = [&](std::int64_t size) {
      const TileGroups groups(kernels_, size);  // the last one, which overlaps, counts whole
      return std::max(weight_bytes, groups.count * groups.size * (tile_macs / kMacsPerByte));
    };
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    const auto consider = [&](bool shared, std::int64_t chunks) {
      const std::int64_t size = ceil_div(tiles, chunks);
      const std::int64_t cost = shared ? (chunks * product_cost(size) + 2 * tiles * tile_bytes) / threads
                                       : ceil_div(chunks, threads) * product_cost(size);
      if (cost >= best) return;
      best = cost;
      shared_ = shared;
      chunk_ = size;
    };
    const auto fewest_chunks = [&](std::int64_t budget) {
      return ceil_div(tiles, std::max<std::int64_t>(2 * kernels_.group, budget / tile_bytes));
    };
    const std::int64_t fewest = fewest_chunks(kWorkerBytes);
    for (std::int64_t chunks = fewest; chunks < 2 * (fewest + threads); ++chunks) consider(false, chunks);
    consider(true, fewest_chunks(kSharedBytes));

    workspaces_ = shared_ ? 1 : threads;
    product_tasks_ = products * std::clamp<std::int64_t>(ceil_div(4 * threads, products), 1, panels_.count());
    v_ = Planes(chunk_, x_[1], products);
    m_ = Planes(chunk_, y_[1], products);
  }

  // Panel by panel, so that no second copy of all transformed weights is needed.
  void pack(const Tensor& weights) {
    const float* filters = weights.values<float>().data();
    const std::int64_t channels = x_[1];
    const std::int64_t plane = panels_.panel * channels;
    const int products = transforms_.products();
    packed_ = HostBuffer(static_cast<std::size_t>(products * panels_.bytes()));
    const HostBuffer transformed(static_cast<std::size_t>(products * plane) * sizeof(float));
    float* u = reinterpret_cast<float*>(transformed.data());
    for (std::int64_t p = 0; p < panels_.count(); ++p) {
      transforms_.filters(filters + p * panels_.panel * channels * 9, panels_.columns(p) * channels, u,
                          plane);
      TilePanels one(kernels_, channels, panels_.columns(p));
      for (int i = 0; i < products; ++i) {
        pack_f32_panel(one, 0, {u + i * plane, channels, 1, 0, channels, 1},
                       packed_.data() + panel_offset(i, p));
      }
    }
  }

  std::int64_t panel_offset(std::int64_t product, std::int64_t panel) const {
    return product * panels_.bytes() + panels_.offset(panel);
  }

  void transform_input(const Operands& operands, std::int64_t tile, float* v, float* stage) const {
    Place at = place(tile);
    at.row -= pad_top_;
    at.column -= pad_left_;
    WinogradImage image{reinterpret_cast<const float*>(operands.x) + at.image * x_[1] * x_[2] * x_[3], x_[2],
                        x_[3], x_[1]};
    if (half_) image = widen_inputs(reinterpret_cast<const Half*>(operands.x), at, stage);
    transforms_.input(image, at.row, at.column, v, v_.plane);
  }

  // What a tile reads as an image of its own, of which `at` becomes the place.
  WinogradImage widen_inputs(const Half* x, Place& at, float* stage) const {
    const std::int64_t row = std::max<std::int64_t>(at.row, 0);
    const std::int64_t column = std::max<std::int64_t>(at.column, 0);
    const std::int64_t rows = std::max<std::int64_t>(0, std::min(at.row + transforms_.inputs, x_[2]) - row);
    const std::int64_t columns =
        std::max<std::int64_t>(0, std::min(at.column + transforms_.inputs, x_[3]) - column);
    const std::int64_t count = columns * x_[1];
    for (std::int64_t i = 0; i < rows; ++i) {
      row_kernels().to_float(x + ((at.image * x_[2] + row + i) * x_[3] + column) * x_[1], stage + i * count,
                             count);
    }
    at.row -= row;
    at.column -= column;
    return {stage, rows, columns, x_[1]};
  }

  // Products [begin, end), counted through the panels of every product, for all tiles of a chunk.
  void multiply(const float* v, float* m, std::int64_t tiles, std::int64_t begin, std::int64_t end) const {
    constexpr std::int32_t kOneSegment = 0;
    TileCall call;
    call.a_stride = v_.row * 4;
    call.segments = &kOneSegment;
    call.segment_count = 1;
    call.run = static_cast<std::int32_t>(x_[1]);
    call.c_stride = m_.row * 4;
    call.low = Clamp{}.low;
    call.high = Clamp{}.high;
    // The tiles of a panel share the prefetching of the next one.
    const std::int64_t calls = ceil_div(TileGroups(kernels_, tiles).count, 2);
    call.prefetch_step = std::min<std::int64_t>(64, ceil_div(panels_.panel * 4, calls));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t product = i / panels_.count();
      const std::int64_t panel = i % panels_.count();
      call.weights = packed_.data() + panel_offset(product, panel);
      call.prefetch = call.weights + panels_.panel * panels_.steps * 4;
      call.columns = panels_.columns(panel);
      call.a[0] = reinterpret_cast<const std::byte*>(v + product * v_.plane);
      call.c[0] = reinterpret_cast<std::byte*>(m + product * m_.plane + panel * panels_.panel);
      run_tile_row(kernels_, call, tiles);
    }
  }

  void transform_output(const Operands& operands, std::int64_t tile, const float* m, float* stage) const {
    const Place at = place(tile);
    const std::int64_t pixel = (at.image * y_[2] + at.row) * y_[3] + at.column;
    WinogradOutput output;
    output.bias = operands.bias;
    output.rows = std::min<std::int64_t>(transforms_.outputs, y_[2] - at.row);
    output.columns = std::min<std::int64_t>(transforms_.outputs, y_[3] - at.column);
    output.channels = y_[1];
    output.clamp = activation_;
    output.pixel_step = half_ ? y_[1] : y_pixel_;
    output.row_step = half_ ? output.columns * y_[1] : y_[3] * y_pixel_;
    if (half_) {
      output.data = stage;
      if (operands.residual != nullptr) output.residual = widen_residual(operands, pixel, output);
    } else {
      output.data = reinterpret_cast<float*>(operands.y) + pixel * y_pixel_;
      if (operands.residual != nullptr)
        output.residual = reinterpret_cast<const float*>(operands.residual) + pixel * y_pixel_;
    }
    transforms_.output(m, m_.plane, output);
    if (half_) store_halves(output, reinterpret_cast<Half*>(operands.y) + pixel * y_pixel_);
  }

  // Behind the place of the outputs.
  const float* widen_residual(const Operands& operands, std::int64_t pixel,
                              const WinogradOutput& output) const {
    float* to = output.data + output.rows * output.row_step;
    for (std::int64_t i = 0; i < output.rows; ++i) {
      row_kernels().to_float(reinterpret_cast<const Half*>(operands.residual) + (pixel + i * y_[3]) * y_[1],
                             to + i * output.row_step, output.row_step);
    }
    return to;
  }

  void store_halves(const WinogradOutput& output, Half* y) const {
    for (std::int64_t i = 0; i < output.rows; ++i) {
      for (std::int64_t j = 0; j < output.columns; ++j) {
        float* from = output.data + i * output.row_step + j * output.pixel_step;
        if (!epilogue_.empty()) epilogue_.apply(from, 0, {y_[1]});
        row_kernels().to_half(from, y + (i * y_[3] + j) * y_pixel_, y_[1]);
      }
    }
  }

  // Half of a second-level cache of 2 MiB, and what a chunk may take of the arena where all workers share it.
  static constexpr std::int64_t kWorkerBytes = 1 << 20;
  static constexpr std::int64_t kSharedBytes = 8 << 20;
  // What a core multiplies and adds while it reads a byte from its third-level cache: about 80 G/s over 20 GB/s.
  static constexpr std::int64_t kMacsPerByte = 4;

  const WinogradTransforms& transforms_;
  const TileKernels& kernels_;
  Clamp activation_;
  Epilogue epilogue_{1};
  Shape x_;
  Shape y_;
  std::int64_t y_pixel_ = 0;  // elements from pixel to pixel
  bool adds_ = false;
  TileGrid grid_;
  TilePanels panels_;  // of one product
  std::int64_t pad_top_ = 0;
  std::int64_t pad_left_ = 0;
  bool half_;  // operands are stored as f16
  int threads_;
  std::int64_t stage_ = 0;  // f16: floats of one tile's inputs, or of its outputs and residuals
  HostBuffer packed_;       // [products][panels]

  bool shared_ = false;          // all workers share a chunk, or each has one of its own
  std::int64_t chunk_ = 0;       // tiles
  std::int64_t workspaces_ = 0;  // chunks in work at a time
  std::int64_t product_tasks_ = 0;
  Planes v_;  // inputs of a chunk
  Planes m_;  // its products
};

Refusal refuse_winograd(const NodeSpec& spec, const WinogradTransforms& transforms,
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
  if (!options.everywhere) {
    const std::int64_t tiles = TileGrid(y, transforms.outputs).count;
    if (tiles < 25) return fmt::format("{} tiles are too few for transformed weights to pay", tiles);
    if (channels < 16 || y[1] < 16) return "too few channels for the transforms to pay";
  }
  if (!is_row_major(weights->desc())) return "the weights must be row_major";
  const double error = winograd_error(transforms, weights->values<float>().data(), y[1], channels);
  if (!(error <= options.max_error)) {
    return fmt::format(
        "inexact with these weights: relative error {:.1e} on a sample, at most {:.0e} allowed", error,
        kMaxWinogradError);
  }
  return std::nullopt;
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
  candidate.measure_at_load = true;
  registry.add(Conv::kType, DeviceKind::cpu, std::move(candidate));
}

void register_cpu_conv_winograd(Registry& registry) {
  for (const int m : {4, 2}) add_winograd(registry, m, {});
}

}  // namespace pipit
