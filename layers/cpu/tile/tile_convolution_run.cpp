// The loops of a convolution: bands of pixels, panels of outputs, and pieces for a kernel that reads them at once.
#include <algorithm>

#include "layers/cpu/tile/tile_convolution.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/work_sharing.h"

namespace pipit {

namespace {

// How far ahead of their use weights are fetched that are used once.
constexpr std::int64_t kStreamAhead = 4096;

constexpr std::int64_t kFloat = sizeof(float);

}  // namespace

// f32 memory of a band's results, then of its residual; null where they are stored as they are computed.
std::byte* TileConvolution::results(const RunContext& context, int worker) const {
  if (!in_f32()) return nullptr;
  return context.scratch + results_at_ + worker * result_bytes_ * (widens_residual() ? 2 : 1);
}

// Elements [begin, end) of the band's residual to f32.
void TileConvolution::widen_residual(const Operands& operands, const Band& b, std::byte* results,
                                     std::int64_t begin, std::int64_t end) const {
  if (!widens_residual()) return;
  row_kernels().to_float(reinterpret_cast<const Half*>(operands.residual) + first_element(b) + begin,
                         reinterpret_cast<float*>(results + result_bytes_) + begin, end - begin);
}

// What is left to do with pixels [begin, end) of the band once they are summed up.
void TileConvolution::finish(const Operands& operands, const Band& b, std::byte* results, std::int64_t begin,
                             std::int64_t end) const {
  if (!in_f32() && epilogue_.empty()) return;
  std::byte* y = operands.y + (first_pixel(b) + begin) * y_pixel_;
  // Rows of channels that follow each other in y are taken at once, as many as stay in the first-level cache.
  const bool apart = y_pixel_ != channels_ * (half_ ? std::int64_t{sizeof(Half)} : kFloat);
  const std::int64_t step = apart ? 1 : rows_per_chunk(channels_);
  for (std::int64_t p = begin; p < end; p += step, y += step * y_pixel_) {
    const std::int64_t rows = std::min(step, end - p);
    float* sums = in_f32() ? reinterpret_cast<float*>(results) + p * channels_ : reinterpret_cast<float*>(y);
    if (!epilogue_.empty()) epilogue_.apply(sums, 0, {channels_, rows, channels_});
    if (in_f32()) row_kernels().to_half(sums, reinterpret_cast<Half*>(y), rows * channels_);
  }
}

void TileConvolution::run(const std::byte* x, const float* bias, const std::byte* residual, std::byte* y,
                          const RunContext& context, const PixelScales& scales) const {
  const Operands operands{x, bias, residual, y, scales};
  if (panels_outside_) {
    run_panels(operands, context);
  } else {
    run_bands(operands, context);
  }
}

// Where the tiles of a band find their input. `copied`: the copy of it.
TileBand TileConvolution::input_band(const std::byte* x, const Band& b, const std::byte* copied) const {
  TileBand t;
  t.width = width_;
  t.rows = b.images * b.rows;
  t.rows_per_image = b.rows;
  t.a_pixel = input_.pixel_step();
  t.a_row = input_.row_step();
  t.a_image = input_.image_step();
  t.a = input_.copied() ? copied : x + b.image * t.a_image + b.row * t.a_row;
  return t;
}

// Where all operands are evenly spaced: one long row wants the fewest tiles.
void TileConvolution::join_rows(TileBand& t) const {
  if (!input_.evenly_spaced()) return;
  t.width *= t.rows;
  t.rows = 1;
}

// And the other operands. `results` as results() has it.
TileBand TileConvolution::tile_band(const Operands& operands, const Band& b, const std::byte* copied,
                                    std::byte* results) const {
  TileBand t = input_band(operands.x, b, copied);
  t.c_pixel = in_f32() ? channels_ * loop_.c_bytes : y_pixel_ / block_;
  if (block_ > 1) t.c_row = width_ * y_pixel_;
  t.residual_pixel = channels_ * loop_.residual_bytes;
  if (operands.scales.data != nullptr) {
    t.pixel_scale = operands.scales.data + first_pixel(b) * operands.scales.step;
    t.pixel_scale_step = operands.scales.step;
  }
  t.c = in_f32() ? results : operands.y + first_pixel(b) * y_pixel_;
  if (adds_) {
    t.residual = widens_residual() ? results + result_bytes_
                                   : operands.residual + first_element(b) * loop_.residual_bytes;
    t.once = once_;
  }
  if (block_ == 1) join_rows(t);
  return t;
}

// Rows [begin, end) of the copy of a band, counted through its images.
void TileConvolution::copy(const std::byte* x, const Band& b, std::int64_t begin, std::int64_t end,
                           std::byte* to) const {
  const std::int64_t image_rows = input_.copied_rows(b.rows);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t image = row / image_rows;
    input_.copy(x + (b.image + image) * input_bytes_, b.row, row % image_rows, row % image_rows + 1,
                to + image * input_.image_step());
  }
}

void TileConvolution::run_bands(const Operands& operands, const RunContext& context) const {
  const std::byte* weights = packed_.data();
  if (stored_) {
    weights = context.scratch + weights_at_;
    context.pool.parallel_for(loop_.panel_count(), [&](std::int64_t panel, int /*worker*/) {
      stored_->widen(panel, context.scratch + weights_at_ + panel_offset(panel));
    });
  }
  context.pool.parallel_for(bands(), [&](std::int64_t index, int worker) {
    const Band b = band(index);
    std::byte* copied = context.scratch + worker * copy_bytes_;
    std::byte* result = results(context, worker);
    if (input_.copied()) copy(operands.x, b, 0, b.images * input_.copied_rows(b.rows), copied);
    widen_residual(operands, b, result, 0, pixels(b) * channels_);
    const TileBand t = tile_band(operands, b, copied, result);
    loop_.run_tiles(t, {0, loop_.tiles(t)}, {0, loop_.panel_count()}, weights, operands.bias);
    finish(operands, b, result, 0, pixels(b));
  });
}

void TileConvolution::run_panels(const Operands& operands, const RunContext& context) const {
  const std::int64_t panels = loop_.panel_count();
  const std::int64_t step = rows_per_chunk(channels_);
  for (std::int64_t index = 0; index < bands(); ++index) {
    const Band b = band(index);
    std::byte* result = results(context, 0);
    if (input_.copied()) {
      context.pool.parallel_for(b.images * input_.copied_rows(b.rows), [&](std::int64_t row, int /*worker*/) {
        copy(operands.x, b, row, row + 1, context.scratch);
      });
    }
    if (widens_residual()) {
      parallel_chunks(context.pool, pixels(b), step, [&](std::int64_t begin, std::int64_t end) {
        widen_residual(operands, b, result, begin * channels_, end * channels_);
      });
    }
    const TileBand t = tile_band(operands, b, context.scratch, result);
    const std::int64_t tiles = loop_.tiles(t);
    const std::int64_t splits = std::min(splits_, tiles);
    context.pool.parallel_for(panels * splits, [&](std::int64_t task, int worker) {
      const std::int64_t panel = task / splits;
      const TileRange part = TileRange{0, tiles}.part(task % splits, splits);
      // The panel that this worker takes next; where a panel serves a single tile, what follows in it.
      const std::int64_t next = panel + 1;
      std::span<const std::byte> fetch;
      if (tiles == 1) {
        fetch = kept_panel(panel);
        fetch = {fetch.data() + kStreamAhead, fetch.size()};
      } else if (next < panels && static_cast<std::int64_t>(kept_panel(next).size()) <= cache_budget()) {
        fetch = kept_panel(next);
      }
      const auto fetch_bytes = static_cast<std::int64_t>(fetch.size());
      if (stored_) {
        std::byte* weights = context.scratch + weights_at_ + worker * panel_bytes();
        stored_->widen(panel, weights);
        TileBand columns = t;
        const std::int64_t output = first_output(panel);
        columns.c += output * kFloat;
        if (t.residual != nullptr) columns.residual += output * kFloat;
        run_panel(columns, part, panel, weights, operands.bias, fetch.data(), fetch_bytes);
      } else {
        loop_.run_tiles(t, part, {panel, panel + 1}, packed_.data(), operands.bias, fetch.data(),
                        fetch_bytes);
      }
    });
    if (!in_f32() && epilogue_.empty()) continue;
    parallel_chunks(context.pool, pixels(b), step,
                    [&](std::int64_t begin, std::int64_t end) { finish(operands, b, result, begin, end); });
  }
}

// One panel that lies alone at `weights`: a layer with no other outputs, which are t.c's first ones.
void TileConvolution::run_panel(TileBand t, const TileRange& tiles, std::int64_t panel,
                                const std::byte* weights, const float* bias, const std::byte* prefetch,
                                std::int64_t prefetch_bytes) const {
  const std::int64_t group = panel / loop_.panels.count();
  const std::int64_t in_group = panel % loop_.panels.count();
  const std::int64_t output = first_output(panel);
  TileLoop alone = loop_;
  alone.groups = 1;
  alone.panels = TilePanels(*loop_.kernels, loop_.panels.steps, loop_.panels.columns(in_group));
  if (alone.shared.multiplier != nullptr) alone.shared.multiplier += output;
  t.a += group * loop_.a_group;
  alone.run_tiles(t, tiles, {0, 1}, weights, bias == nullptr ? nullptr : bias + output, prefetch,
                  prefetch_bytes);
}

// Results of one row in f32 where they are stored as halves but not computed so.
std::size_t TileConvolution::piece_scratch_bytes() const {
  return in_f32() ? static_cast<std::size_t>(width_ * piece_channels() * 4) : 0;
}

void TileConvolution::compute_piece(const std::byte* x, const float* bias, std::int64_t image,
                                    const TileRange& rows, std::int64_t block, std::byte* y,
                                    std::int64_t columns, std::byte* scratch) const {
  const std::int64_t channels = loop_.panels.columns(block);
  const std::byte* weights = packed_.data() + panel_offset(block);
  TileBand t = input_band(x, {image, 1, rows.begin, rows.size()}, nullptr);
  t.c_pixel = channels * loop_.c_bytes;
  if (!in_f32()) {
    t.c = y;
    t.c_row = columns * t.c_pixel;
    if (columns == width_) join_rows(t);
    run_panel(t, {0, loop_.tiles(t)}, block, weights, bias);
    if (epilogue_.empty()) return;
    for (std::int64_t row = 0; row < rows.size(); ++row, y += t.c_row)
      epilogue_.apply(reinterpret_cast<float*>(y), first_output(block), {channels, width_, channels});
    return;
  }
  auto* sums = reinterpret_cast<float*>(scratch);
  t.c = reinterpret_cast<std::byte*>(sums);
  t.rows = 1;
  for (std::int64_t row = 0; row < rows.size(); ++row, t.a += t.a_row) {
    run_panel(t, {0, loop_.tiles(t)}, block, weights, bias);
    epilogue_.apply(sums, first_output(block), {channels, width_, channels});
    row_kernels().to_half(sums, reinterpret_cast<Half*>(y) + row * columns * channels, width_ * channels);
  }
}

}  // namespace pipit
