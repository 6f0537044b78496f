// The loops of a convolution: bands of pixels, panels of outputs, and pieces for a kernel that reads them at once.
#include <algorithm>
#include <cstring>

#include "layers/cpu/tile/tile_convolution.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

// How far ahead of their use weights are fetched that are used once.
constexpr std::int64_t kStreamAhead = 4096;

constexpr std::int64_t kFloat = sizeof(float);

}  // namespace

TileConvolution::Stage TileConvolution::stage(const RunContext& context, int worker) const {
  Stage stage;
  if (input_.copied()) stage.copied = context.scratch + scratch_.copy_at(worker);
  if (arithmetic_.rounds_results) stage.results = context.scratch + scratch_.results_at(worker);
  if (arithmetic_.widens_residual) stage.residual = context.scratch + scratch_.residual_at(worker);
  return stage;
}

// Pixels of the band's residual to f32.
void TileConvolution::widen_residual(const Operands& operands, const ImageBand& b, const Stage& stage,
                                     const TileRange& pixels) const {
  if (!arithmetic_.widens_residual) return;
  widen_row(arithmetic_.stored, operands.residual, (schedule_.first_pixel(b) + pixels.begin) * channels_,
            reinterpret_cast<float*>(stage.residual) + pixels.begin * channels_, pixels.size() * channels_);
}

// What is left to do with pixels of the band once they are summed up.
void TileConvolution::finish(const Operands& operands, const ImageBand& b, const Stage& stage,
                             const TileRange& pixels) const {
  const bool rounds = arithmetic_.rounds_results;
  if (!rounds && epilogue_.empty()) return;
  // Rows of channels that follow each other in y are taken at once, as many as stay in the first-level cache.
  const bool apart = y_pixel_ != channels_ * arithmetic_.stored_bytes;
  const std::int64_t step = apart ? 1 : rows_per_chunk(channels_);
  for (std::int64_t p = pixels.begin; p < pixels.end;) {
    const std::int64_t in_row = padding_.empty() ? step : std::min(step, width_ - p % width_);
    const std::int64_t rows = std::min(in_row, pixels.end - p);
    std::byte* y = pixel_of_y(operands.y, b, p);
    finish_rows(
        rounds ? reinterpret_cast<float*>(stage.results) + p * channels_ : reinterpret_cast<float*>(y), y,
        rows);
    p += rows;
  }
}

void TileConvolution::finish_rows(float* sums, std::byte* y, std::int64_t rows) const {
  if (!epilogue_.empty()) epilogue_.apply(sums, 0, {channels_, rows, channels_});
  if (arithmetic_.rounds_results) narrow_row(sums, arithmetic_.stored, y, 0, rows * channels_);
}

// Outputs of these panels for the pixel that stands for the frame.
void TileConvolution::compute_frame(const RunContext& context, const TileRange& panels,
                                    const float* bias) const {
  TileBand t;
  t.width = 1;
  t.rows = 1;
  t.a = padding_.data();
  t.c = context.scratch + scratch_.frame_at();
  t.c_pixel = channels_ * arithmetic_.result_bytes;
  loop_.run_tiles(t, {0, 1}, panels, weights_->as_read() + loop_.panel(panels.begin).weights, bias);
}

// The pixel to all places of the frame.
void TileConvolution::copy_frame(std::byte* y, const RunContext& context) const {
  std::byte* const sums = context.scratch + scratch_.frame_at();
  std::byte* const pixel = arithmetic_.rounds_results ? sums + scratch_.frame : sums;
  finish_rows(reinterpret_cast<float*>(sums), pixel, 1);
  const auto bytes = static_cast<std::size_t>(channels_ * arithmetic_.stored_bytes);
  const auto fill = [&](std::byte* row, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) std::memcpy(row + i * y_pixel_, pixel, bytes);
  };
  const std::int64_t step = rows_per_chunk(frame_.width * channels_);
  parallel_chunks(context.pool, images_ * frame_.height, step, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t inside = i % frame_.height - frame_.top;
      const bool padding = inside < 0 || inside >= height_;
      fill(y + i * y_row_, 0, padding ? frame_.width : frame_.left);
      if (!padding) fill(y + i * y_row_, frame_.left + width_, frame_.width);
    }
  });
}

// Where a pixel of a band is in y.
std::byte* TileConvolution::pixel_of_y(std::byte* y, const ImageBand& b, std::int64_t pixel) const {
  const std::int64_t row = pixel / width_;
  return y + (b.image + row / b.rows) * y_image_ + (b.row + row % b.rows + frame_.top) * y_row_ +
         (pixel % width_ + frame_.left) * y_pixel_;
}

void TileConvolution::run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
                          const RunContext& context, const PixelScales& scales) const {
  const Operands operands{x, bias, residual, y, scales};
  if (schedule_.shares_bands()) {
    run_bands(operands, context);
  } else {
    run_panels(operands, context);
  }
  if (!padding_.empty()) copy_frame(y, context);
}

// Where the tiles of a band find their input. `copied`: the copy of it.
TileBand TileConvolution::input_band(const std::byte* x, const ImageBand& b, const std::byte* copied) const {
  TileBand t;
  t.width = width_;
  t.rows = b.images * b.rows;
  t.rows_per_image = b.rows;
  t.a_pixel = input_.pixel_step();
  t.a_row = input_.row_step();
  t.a_image = input_.image_step();
  t.a = input_.copied() ? copied : x + input_.image_at(b.image) + b.row * t.a_row;
  return t;
}

// Where all operands are evenly spaced: one long row wants the fewest tiles.
void TileConvolution::join_rows(TileBand& t) const {
  const bool spaced = block_ == 1 && (padding_.empty() || arithmetic_.rounds_results);
  if (!spaced || !input_.evenly_spaced()) return;
  t.width *= t.rows;
  t.rows = 1;
}

// Pixels of strips that overlap their neighbours are computed twice.
KernelWork TileConvolution::work() const {
  std::int64_t pixels = 0;
  for (std::int64_t index = 0; index < schedule_.bands(); ++index) {
    TileBand t = input_band(nullptr, schedule_.band(index), nullptr);
    join_rows(t);
    const TileStrips strips(*loop_.kernels, t.width);
    pixels += t.rows * (once_ ? t.width : strips.count * strips.size);
  }
  std::int64_t pixel_macs = 0;
  for (const TilePanel& panel : loop_.panels)
    pixel_macs += panel.steps() * loop_.kernels->panel_macs(panel.columns);
  return {pixels * pixel_macs, arithmetic_.products, loop_.kernels->isa};
}

// And the other operands.
TileBand TileConvolution::tile_band(const Operands& operands, const ImageBand& b, const Stage& stage) const {
  const std::int64_t first = schedule_.first_pixel(b);
  TileBand t = input_band(operands.x, b, stage.copied);
  if (arithmetic_.rounds_results) {
    t.c = stage.results;
    t.c_pixel = channels_ * arithmetic_.result_bytes;
  } else {
    t.c = pixel_of_y(operands.y, b, 0);
    t.c_pixel = y_pixel_ / block_;
    t.c_row = y_row_;
    t.c_image = y_image_;
  }
  t.residual_pixel = channels_ * arithmetic_.residual_bytes;
  if (adds_) {
    t.residual = arithmetic_.widens_residual ? stage.residual : operands.residual + first * t.residual_pixel;
    t.once = once_;
  }
  if (operands.scales.data != nullptr) {
    t.pixel_scale = operands.scales.data + first * operands.scales.step;
    t.pixel_scale_step = operands.scales.step;
  }
  t.sum_bias = operands.scales.sum_bias;
  t.multipliers = operands.scales.multipliers;
  join_rows(t);
  return t;
}

// Rows of the copy of a band, counted through its images.
void TileConvolution::copy(const Operands& operands, const ImageBand& b, const TileRange& rows,
                           std::byte* to) const {
  const std::int64_t image_rows = input_.copied_rows(b.rows);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t image = row / image_rows;
    input_.copy(operands.x, b.image + image, b.row, row % image_rows, row % image_rows + 1,
                to + image * input_.image_step(), operands.scales.padding);
  }
}

void TileConvolution::run_bands(const Operands& operands, const RunContext& context) const {
  const std::byte* weights = weights_->as_read();
  if (weights == nullptr) {
    std::byte* widened = context.scratch + scratch_.weights_at(0);
    context.pool.parallel_for(loop_.panel_count(), [&](std::int64_t panel, int /*worker*/) {
      weights_->widen(panel, widened + loop_.panel(panel).weights);
    });
    weights = widened;
  }
  context.pool.parallel_for(schedule_.bands(), [&](std::int64_t index, int worker) {
    const ImageBand b = schedule_.band(index);
    const TileRange pixels{0, schedule_.pixels(b)};
    const Stage at = stage(context, worker);
    if (input_.copied()) copy(operands, b, {0, b.images * input_.copied_rows(b.rows)}, at.copied);
    widen_residual(operands, b, at, pixels);
    const TileBand t = tile_band(operands, b, at);
    loop_.run_tiles(t, {0, loop_.tiles(t)}, {0, loop_.panel_count()}, weights, operands.bias);
    finish(operands, b, at, pixels);
    if (index == 0 && !padding_.empty()) compute_frame(context, {0, loop_.panel_count()}, operands.bias);
  });
}

void TileConvolution::run_panels(const Operands& operands, const RunContext& context) const {
  const std::int64_t step = rows_per_chunk(channels_);
  const Stage at = stage(context, 0);
  for (std::int64_t index = 0; index < schedule_.bands(); ++index) {
    const ImageBand b = schedule_.band(index);
    const std::int64_t pixels = schedule_.pixels(b);
    if (input_.copied()) {
      context.pool.parallel_for(b.images * input_.copied_rows(b.rows), [&](std::int64_t row, int /*worker*/) {
        copy(operands, b, {row, row + 1}, at.copied);
      });
    }
    if (arithmetic_.widens_residual) {
      parallel_chunks(context.pool, pixels, step, [&](std::int64_t begin, std::int64_t end) {
        widen_residual(operands, b, at, {begin, end});
      });
    }
    const TileBand t = tile_band(operands, b, at);
    const TileRange tiles{0, loop_.tiles(t)};
    const std::int64_t splits = schedule_.splits(tiles.end);
    context.pool.parallel_for(loop_.panel_count() * splits, [&](std::int64_t task, int worker) {
      run_panel(t, tiles.part(task % splits, splits), tiles.end == 1, task / splits, operands.bias,
                context.scratch + scratch_.weights_at(worker));
      if (index == 0 && task % splits == 0 && !padding_.empty())
        compute_frame(context, {task / splits, task / splits + 1}, operands.bias);
    });
    if (!arithmetic_.rounds_results && epilogue_.empty()) continue;
    parallel_chunks(context.pool, pixels, step, [&](std::int64_t begin, std::int64_t end) {
      finish(operands, b, at, {begin, end});
    });
  }
}

// `alone`: the panel serves these tiles only. `widened`: room for a panel.
void TileConvolution::run_panel(const TileBand& t, const TileRange& tiles, bool alone, std::int64_t panel,
                                const float* bias, std::byte* widened) const {
  // The panel that this worker takes next; where a panel serves a single tile, what follows in it.
  std::span<const std::byte> fetch;
  if (alone) {
    fetch = weights_->kept(panel);
    fetch = {fetch.data() + kStreamAhead, fetch.size()};
  } else if (panel + 1 < loop_.panel_count()) {
    fetch = weights_->kept(panel + 1);
    if (static_cast<std::int64_t>(fetch.size()) > schedule_.cache_bytes()) fetch = {};
  }
  const std::byte* weights = weights_->as_read();
  if (weights != nullptr) {
    weights += loop_.panel(panel).weights;
  } else {
    weights_->widen(panel, widened);
    weights = widened;
  }
  loop_.run_tiles(t, tiles, {panel, panel + 1}, weights, bias, fetch.data(),
                  static_cast<std::int64_t>(fetch.size()));
}

// Results of one row in f32 where they are stored in 16 bits but not computed so.
std::size_t TileConvolution::piece_scratch_bytes() const {
  return arithmetic_.rounds_results ? static_cast<std::size_t>(width_ * piece_channels() * kFloat) : 0;
}

void TileConvolution::compute_piece(const std::byte* x, const float* bias, std::int64_t image,
                                    const TileRange& rows, std::int64_t block, std::byte* y,
                                    std::int64_t columns, std::byte* scratch) const {
  const TilePanel& panel = loop_.panel(block);
  const std::int64_t channels = panel.columns;
  const std::byte* weights = weights_->as_read() + panel.weights;
  TileBand t = input_band(x, {image, 1, rows.begin, rows.size()}, nullptr);
  t.c_begin = panel.result;
  t.c_pixel = channels * arithmetic_.result_bytes;
  if (!arithmetic_.rounds_results) {
    t.c = y;
    t.c_row = columns * t.c_pixel;
    if (columns == width_) join_rows(t);
    loop_.run_tiles(t, {0, loop_.tiles(t)}, {block, block + 1}, weights, bias);
    if (epilogue_.empty()) return;
    for (std::int64_t row = 0; row < rows.size(); ++row, y += t.c_row)
      epilogue_.apply(reinterpret_cast<float*>(y), panel.output, {channels, width_, channels});
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch);
  t.c = reinterpret_cast<std::byte*>(sums);
  t.rows = 1;
  for (std::int64_t row = 0; row < rows.size(); ++row, t.a += t.a_row) {
    loop_.run_tiles(t, {0, loop_.tiles(t)}, {block, block + 1}, weights, bias);
    epilogue_.apply(sums, panel.output, {channels, width_, channels});
    narrow_row(sums, arithmetic_.stored, y, row * columns * channels, width_ * channels);
  }
}

}  // namespace pipit::internal
